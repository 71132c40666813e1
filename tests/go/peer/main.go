// peer is the other end of tests/go_peer.rs: it acts as controllers and as launchers of the original do, with Go's own
// encoding/gob and crypto/tls, against a running scheduler, and checks what each of them is told.
//
// Usage: peer -address HOST:PORT -certs DIRECTORY -tls 1.2|1.3 -start FILE
//
// The directory holds CAcert.pem, controller.pem, agent.pem and netagent.pem; FILE is a START payload. It ends with 0 if
// everything was as it should be, else it says what was not.
package main

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ciao-project.org/proto-frames/ssntp"
)

// Only a hang reaches it.
const deadline = time.Minute

// Roles.
const (
	controller = 0x02
	agent      = 0x04
	scheduler  = 0x08
	netagent   = 0x10
)

// Kinds of frames: type and operand.
var (
	start            = [2]uint8{0, 1}
	stats            = [2]uint8{0, 2}
	remove           = [2]uint8{0, 4}
	connected        = [2]uint8{1, 0}
	ready            = [2]uint8{1, 1}
	invalidFrameType = [2]uint8{2, 0}
	startFailure     = [2]uint8{2, 1}
	aborted          = [2]uint8{2, 4}
	instanceDeleted  = [2]uint8{3, 2}
	nodeConnected    = [2]uint8{3, 7}
	nodeDisconnected = [2]uint8{3, 8}
	// A frame type that the protocol does not have: the answer to it marks the end of what was sent before.
	unknown = [2]uint8{9, 0}
)

var (
	address = flag.String("address", "", "where the scheduler listens")
	certs   = flag.String("certs", "", "directory with certificates")
	version = flag.String("tls", "1.3", "TLS version")
	payload = flag.String("start", "", "file with a START payload")
)

// step is what is being tried; it stands in front of every complaint.
var step string

func main() {
	flag.Parse()
	document, err := os.ReadFile(*payload)
	check(err)
	refusal()
	cluster(document)
}

// refusal: a launcher's certificate does not make a controller, and the answer is readable as a ConnectedFrame.
func refusal() {
	step = "a role that is not granted"
	p := dial("agent", controller)
	answer := p.connect()
	if kind := [2]uint8{answer.Type, answer.Operand}; kind != aborted {
		fail("answered %v", kind)
	}
	if answer.Role != 0 || len(answer.Payload) != 0 {
		fail("a refusal with more in it: %+v", answer)
	}
	var frame ssntp.Frame
	if err := p.decoder.Decode(&frame); err == nil {
		fail("more comes behind the refusal: %+v", frame)
	}
}

// cluster plays two controllers, a compute node and a network node through what clusters do.
func cluster(document []byte) {
	step = "connecting"
	master, backup := join("controller", controller), join("controller", controller)
	launcher := join("agent", agent)
	for _, p := range []*peer{master, backup} {
		p.expectText(nodeConnected, launcher.id.String(), "node_type: compute_node")
	}
	network := join("netagent", netagent)
	for _, p := range []*peer{master, backup} {
		p.expectText(nodeConnected, network.id.String(), "node_type: network_node")
	}

	step = "a START before READY"
	master.send(start, document)
	master.expectText(startFailure, "reason: full_cloud")

	step = "READY"
	launcher.send(ready, []byte(fmt.Sprintf(
		"node_uuid: %s\nmem_total_mb: 16384\nmem_available_mb: 16384\ndisk_total_mb: 500000\n"+
			"disk_available_mb: 256000\nload: 0\ncpus_online: 4\nhostname: go\nnetworks:\n- ip: 192.0.2.1\n  mac: 02:00:15:03:6f:49\n",
		launcher.id)))
	launcher.nothingElse()

	step = "a START of three documents"
	master.send(start, document)
	got := launcher.expect(start)
	if !bytes.Equal(got.Payload, document) {
		fail("the payload of %d bytes came as %d others", len(document), len(got.Payload))
	}
	if got.Origin != master.id || got.Trace != nil || got.Major != 0 || got.PayloadLength != uint32(len(document)) {
		fail("the frame is another: %+v", got)
	}

	traced(master, launcher)

	step = "STATS to both controllers"
	report := []byte(fmt.Sprintf("node_uuid: %s\nstatus: READY\nload: 3   # odd\ninstances: []\n", launcher.id))
	launcher.send(stats, report)
	for _, p := range []*peer{master, backup} {
		if got := p.expect(stats); !bytes.Equal(got.Payload, report) || got.Origin != launcher.id {
			fail("another frame: %+v", got)
		}
	}

	step = "DELETE and its answer"
	command := []byte(fmt.Sprintf("delete:\n  instance_uuid: %s\n  workload_agent_uuid: %s\n  stop: false\n", newID(), launcher.id))
	master.send(remove, command)
	if got := launcher.expect(remove); !bytes.Equal(got.Payload, command) {
		fail("another frame: %+v", got)
	}
	launcher.send(instanceDeleted, []byte(fmt.Sprintf("instance_deleted:\n  instance_uuid: %s\n", newID())))
	for _, p := range []*peer{master, backup} {
		p.expectText(instanceDeleted, "instance_deleted:\n")
	}

	step = "a START that fits nowhere"
	id := newID()
	master.send(start, []byte(fmt.Sprintf("start:\n  instance_uuid: %s\n  requirements:\n    mem_mb: 1000000\n    vcpus: 1\n", id)))
	master.expectText(startFailure, "instance_uuid: "+id.String()+"\n", "reason: full_cloud\n", "restart: false\n")

	step = "a START that cannot be read"
	master.send(start, []byte("start: [\n"))
	master.expectText(startFailure, "reason: invalid_payload\n")

	step = "a START of the backup"
	backup.send(start, document)
	for _, p := range []*peer{backup, launcher, network, master} {
		p.nothingElse()
	}

	step = "leaving"
	check(launcher.conn.Close())
	for _, p := range []*peer{master, backup} {
		p.expectText(nodeDisconnected, launcher.id.String(), "node_type: compute_node")
		p.nothingElse()
	}
}

// traced: the scheduler adds itself to the path and changes nothing else.
func traced(master, launcher *peer) {
	step = "a traced START"
	zone := time.FixedZone("", 2*3600+30*60)
	began := time.Unix(1500000000, 123456789).In(zone)
	id := newID()
	master.encode(&ssntp.Frame{
		Major: 0x80, Minor: 1, Type: start[0], Operand: start[1], Origin: master.id,
		Trace: &ssntp.FrameTrace{
			Label: []byte("from go"), StartTimestamp: began, PathLength: 1,
			Path: []ssntp.Node{{UUID: master.id[:], Role: controller, TxTimestamp: began.Add(time.Second)}},
		},
		Payload:       []byte(fmt.Sprintf("start:\n  instance_uuid: %s\n", id)),
		PayloadLength: uint32(len("start:\n  instance_uuid: \n") + 36),
	})
	got := launcher.expect(start)
	if got.Major != 0x80 || got.Trace == nil {
		fail("the trace is gone: %+v", got)
	}
	trace := got.Trace
	if string(trace.Label) != "from go" || !trace.StartTimestamp.Equal(began) || !trace.EndTimestamp.IsZero() {
		fail("another trace: %+v", trace)
	}
	if _, offset := trace.StartTimestamp.Zone(); offset != 2*3600+30*60 {
		fail("the time zone is now %d seconds", offset)
	}
	if trace.PathLength != 2 || len(trace.Path) != 2 {
		fail("the path is %+v", trace.Path)
	}
	first, own := trace.Path[0], trace.Path[1]
	if !bytes.Equal(first.UUID, master.id[:]) || !first.TxTimestamp.Equal(began.Add(time.Second)) || !first.RxTimestamp.IsZero() {
		fail("the first node is now %+v", first)
	}
	if !bytes.Equal(own.UUID, launcher.server) || own.Role != scheduler {
		fail("the scheduler calls itself %+v", own)
	}
	if own.RxTimestamp.IsZero() || own.TxTimestamp.Before(own.RxTimestamp) {
		fail("the scheduler's times are %+v", own)
	}
}

// A peer is one connection.
type peer struct {
	id      ssntp.UUID
	role    uint32
	server  []byte
	conn    *tls.Conn
	encoder *gob.Encoder
	decoder *gob.Decoder
}

// dial goes through TLS with the named certificate.
func dial(name string, role uint32) *peer {
	ca, err := os.ReadFile(filepath.Join(*certs, "CAcert.pem"))
	check(err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		fail("no CA certificate")
	}
	// Certificate and key stand in one file.
	file := filepath.Join(*certs, name+".pem")
	pair, err := tls.LoadX509KeyPair(file, file)
	check(err)
	number := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[*version]
	conn, err := tls.Dial("tcp", *address, &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "localhost",
		MinVersion: number, MaxVersion: number,
	})
	check(err)
	check(conn.SetDeadline(time.Now().Add(deadline)))
	return &peer{id: newID(), role: role, conn: conn, encoder: gob.NewEncoder(conn), decoder: gob.NewDecoder(conn)}
}

// connect sends CONNECT and decodes the answer into a ConnectedFrame, whatever it is.
func (p *peer) connect() ssntp.ConnectedFrame {
	check(p.encoder.Encode(&ssntp.ConnectFrame{Minor: 1, Role: p.role, Source: p.id[:], Destination: make([]byte, 16)}))
	var answer ssntp.ConnectedFrame
	check(p.decoder.Decode(&answer))
	return answer
}

// join connects a peer that must be let in.
func join(name string, role uint32) *peer {
	p := dial(name, role)
	answer := p.connect()
	if kind := [2]uint8{answer.Type, answer.Operand}; kind != connected {
		fail("%s is answered %v", name, kind)
	}
	if answer.Role != scheduler || !bytes.Equal(answer.Destination, p.id[:]) || len(answer.Source) != 16 {
		fail("CONNECTED says %+v", answer)
	}
	// Its file has none of these: an original peer reads a key that is missing as zero.
	for _, want := range []string{"ciao_port: 8889\n", "cnci_mem: 2048\n", "mem_limit: true\n", "compute_ca: /ca.pem\n"} {
		if !strings.Contains(string(answer.Payload), want) || int(answer.PayloadLength) != len(answer.Payload) {
			fail("the configuration is %q, without %q", answer.Payload, want)
		}
	}
	p.server = answer.Source
	return p
}

func (p *peer) send(kind [2]uint8, payload []byte) {
	p.encode(&ssntp.Frame{
		Minor: 1, Type: kind[0], Operand: kind[1], Origin: p.id, PayloadLength: uint32(len(payload)), Payload: payload,
	})
}

func (p *peer) encode(frame *ssntp.Frame) {
	check(p.encoder.Encode(frame))
}

// expect decodes the next frame, which must be of this kind.
func (p *peer) expect(kind [2]uint8) ssntp.Frame {
	var frame ssntp.Frame
	err := p.decoder.Decode(&frame)
	if errors.Is(err, io.EOF) {
		fail("role %#x is cut off instead of being sent %v", p.role, kind)
	}
	check(err)
	if got := [2]uint8{frame.Type, frame.Operand}; got != kind {
		fail("role %#x is sent %v instead of %v: %q", p.role, got, kind, frame.Payload)
	}
	return frame
}

// expectText is expect for a frame whose payload has all these texts in it.
func (p *peer) expectText(kind [2]uint8, texts ...string) {
	frame := p.expect(kind)
	for _, text := range texts {
		if !strings.Contains(string(frame.Payload), text) {
			fail("%q is not in %q", text, frame.Payload)
		}
	}
	if int(frame.PayloadLength) != len(frame.Payload) {
		fail("PayloadLength %d for %d bytes", frame.PayloadLength, len(frame.Payload))
	}
}

// nothingElse waits until everything sent was handled, and makes sure that nothing was sent back.
func (p *peer) nothingElse() {
	p.send(unknown, nil)
	p.expect(invalidFrameType)
}

func newID() (id ssntp.UUID) {
	_, err := rand.Read(id[:])
	check(err)
	return id
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, values ...interface{}) {
	fmt.Fprintf(os.Stderr, "%s: %s\n", step, fmt.Sprintf(format, values...))
	os.Exit(1)
}
