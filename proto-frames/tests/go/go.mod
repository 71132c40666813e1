module ciao-project.org/proto-frames

go 1.19
