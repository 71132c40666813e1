module ciao-project.org/peer

go 1.19

require ciao-project.org/proto-frames v0.0.0

replace ciao-project.org/proto-frames => ../../../proto-frames/tests/go
