// gob_peer is the other end of tests/go_gob.rs: it reads and writes SSNTP's structs with Go's own encoding/gob.
//
// Usage: gob_peer server|client|refused|extended
//
//	server    reads what a client sends (ConnectFrame, then Frames) and writes it again
//	client    reads what a server sends (ConnectedFrame, then Frames) and writes it again
//	refused   reads a refusal into a ConnectedFrame, as a client that waits for one does, and writes it as a Frame
//	extended  reads nothing; writes a client's stream whose structs have their fields in another order and many more
//
// Like the original, it takes a fresh encoder and, as a server, a fresh decoder behind the message that opens the
// stream.
package main

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"ciao-project.org/proto-frames/ssntp"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "gob_peer:", err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 2 {
		check(errors.New("usage: gob_peer server|client|refused|extended"))
	}
	// A bufio.Reader, because a decoder reads ahead of itself from anything else.
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	switch os.Args[1] {
	case "server":
		var connect ssntp.ConnectFrame
		check(gob.NewDecoder(in).Decode(&connect))
		check(gob.NewEncoder(out).Encode(&connect))
		frames(gob.NewDecoder(in), out)
	case "client":
		var connected ssntp.ConnectedFrame
		decoder := gob.NewDecoder(in)
		check(decoder.Decode(&connected))
		check(gob.NewEncoder(out).Encode(&connected))
		frames(decoder, out)
	case "refused":
		var answer ssntp.ConnectedFrame
		check(gob.NewDecoder(in).Decode(&answer))
		check(gob.NewEncoder(out).Encode(&ssntp.Frame{
			Major: answer.Major, Minor: answer.Minor, Type: answer.Type, Operand: answer.Operand,
			PayloadLength: answer.PayloadLength, Payload: answer.Payload,
		}))
	case "extended":
		extended(out)
	default:
		check(errors.New("no such mode: " + os.Args[1]))
	}
	check(out.Flush())
}

// frames copies frames, through Go's structs, to the end of the stream.
func frames(decoder *gob.Decoder, out io.Writer) {
	encoder := gob.NewEncoder(out)
	for {
		var frame ssntp.Frame
		err := decoder.Decode(&frame)
		if err == io.EOF {
			return
		}
		check(err)
		check(encoder.Encode(&frame))
	}
}

// Linked is a type that contains itself.
type Linked struct {
	Value int
	Next  *Linked
}

// Extra has a field of each kind that gob knows, but interfaces.
type Extra struct {
	Flag   bool
	Count  int
	Size   uint64
	Ratio  float64
	Phase  complex128
	Text   string
	Blob   []byte
	Table  map[string][]int
	Grid   [2][2]float32
	Chain  *Linked
	Seen   time.Time
	Link   *url.URL
	Empty  struct{ Nothing int }
	Inners []Linked
}

func extra() Extra {
	return Extra{
		Flag: true, Count: -300, Size: 1 << 60, Ratio: 0.1, Phase: complex(1, -2), Text: "text", Blob: []byte("blob"),
		Table: map[string][]int{"key": {1, -2, 3}}, Grid: [2][2]float32{{1, 2}, {3, 4}},
		Chain: &Linked{1, &Linked{2, &Linked{3, nil}}}, Seen: time.Unix(1, 2).UTC(),
		Link: &url.URL{Scheme: "https", Host: "host"}, Inners: []Linked{{4, nil}, {0, &Linked{5, nil}}},
	}
}

// extended writes what a peer of some later version of the protocol might: gob promises that older ones can read it.
func extended(out io.Writer) {
	type ConnectFrame struct {
		Extra       Extra
		Destination []byte
		Source      []byte
		Role        uint32
		Operand     uint8
		Type        uint8
		Minor       uint8
	}
	type Node struct {
		First       Extra
		RxTimestamp time.Time
		TxTimestamp time.Time
		Role        uint32
		UUID        []byte
	}
	type FrameTrace struct {
		Path       []Node
		Middle     Extra
		PathLength uint8
		Label      []byte
		// No timestamps.
	}
	type Frame struct {
		Before        Extra
		Payload       []byte
		Between       map[string]Extra
		Trace         *FrameTrace
		PayloadLength uint32
		Origin        ssntp.UUID
		Operand       uint8
		Type          uint8
		Minor         uint8
		Major         uint8
		Behind        *Extra
	}
	id := ssntp.UUID{0x11, 0x80, 0xff, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	encoder := gob.NewEncoder(out)
	check(encoder.Encode(&ConnectFrame{
		Extra: extra(), Destination: make([]byte, 16), Source: id[:], Role: 0x14, Minor: 1,
	}))
	payload := []byte("ready: {}\n")
	more := extra()
	check(encoder.Encode(&Frame{
		Before: extra(), Payload: payload, Between: map[string]Extra{"only": extra()},
		PayloadLength: uint32(len(payload)), Origin: id, Operand: 1, Type: 1, Minor: 1, Behind: &more,
	}))
	start := time.Unix(1_500_000_000, 123_456_789).In(time.FixedZone("", 2*3600+30*60))
	check(encoder.Encode(&Frame{
		Trace: &FrameTrace{
			Path:   []Node{{First: extra(), TxTimestamp: start, Role: 4, UUID: id[:]}, {UUID: id[:], RxTimestamp: start}},
			Middle: extra(), PathLength: 2, Label: []byte("label"),
		},
		Origin: id, Operand: 2, Minor: 1, Major: 0x80,
	}))
	check(encoder.Encode(&Frame{Origin: id, Type: 1, Operand: 2, Minor: 1}))
}
