// An upload server with the wire habits of Funky's own: it knows nothing but the socket. A file is saved with the mode
// that temporary files have, which may not be executed; the client has its answer before the scheduler has the task; and the
// socket gets one command without a line end and is closed without a look at what it may say.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: upload SOCKET DIRECTORY")
	}
	socket, directory := os.Args[1], os.Args[2]
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listens on", listener.Addr())
	http.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		if err := take(w, r, socket, directory); err != nil {
			log.Print(err)
		}
	})
	log.Fatal(http.Serve(listener, nil))
}

func take(w http.ResponseWriter, r *http.Request, socket, directory string) error {
	form, _, err := r.FormFile("myFile")
	if err != nil {
		return err
	}
	defer form.Close()
	saved, err := os.CreateTemp(directory, "upload-*.ukvm")
	if err != nil {
		return err
	}
	defer saved.Close()
	if _, err := io.Copy(saved, form); err != nil {
		return err
	}
	fmt.Fprintln(w, "Successfully Uploaded File")

	front, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer front.Close()
	_, err = fmt.Fprintf(front, "New: %s priority: %s", saved.Name(), r.FormValue("Priority"))
	return err
}
