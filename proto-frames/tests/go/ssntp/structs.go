// Package ssntp has SSNTP's structs as the original declares them: gob sends their names and those of their fields. The
// peers of proto-frames/tests/go_gob.rs and of tests/go_peer.rs share them.
package ssntp

import (
	"fmt"
	"time"
)

type UUID [16]byte

func (id UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

type Node struct {
	UUID        []byte
	Role        uint32
	TxTimestamp time.Time
	RxTimestamp time.Time
}

type FrameTrace struct {
	Label          []byte
	StartTimestamp time.Time
	EndTimestamp   time.Time
	PathLength     uint8
	Path           []Node
}

type Frame struct {
	Major         uint8
	Minor         uint8
	Type          uint8
	Operand       uint8
	Origin        UUID
	PayloadLength uint32
	Trace         *FrameTrace
	Payload       []byte
}

type ConnectFrame struct {
	Major       uint8
	Minor       uint8
	Type        uint8
	Operand     uint8
	Role        uint32
	Source      []byte
	Destination []byte
}

type ConnectedFrame struct {
	Major         uint8
	Minor         uint8
	Type          uint8
	Operand       uint8
	Role          uint32
	Source        []byte
	Destination   []byte
	PayloadLength uint32
	Payload       []byte
}
