module ciao-project.org/ciao-funky/upload

go 1.21
