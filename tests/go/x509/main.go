// x509 checks certificates as Go's crypto/x509 does, which the original's peers use: a chain from a leaf to an anchor for
// one purpose, and for a server its name.
//
// Usage: x509 -ca FILE -leaf FILE -usage any|server|client [-name NAME]
//
// It ends with 0 if the chain is taken, else it says why not.
package main

import (
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"os"
)

func main() {
	ca := flag.String("ca", "", "CA file")
	leaf := flag.String("leaf", "", "certificate file")
	usage := flag.String("usage", "any", "any, server or client")
	name := flag.String("name", "", "name of the server")
	flag.Parse()
	if err := check(*ca, *leaf, *usage, *name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(ca, leaf, usage, name string) error {
	roots := x509.NewCertPool()
	text, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	if !roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("%s: no certificate", ca)
	}
	text, err = os.ReadFile(leaf)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("%s: no certificate", leaf)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	usages := map[string]x509.ExtKeyUsage{
		"any":    x509.ExtKeyUsageAny,
		"server": x509.ExtKeyUsageServerAuth,
		"client": x509.ExtKeyUsageClientAuth,
	}
	wanted, known := usages[usage]
	if !known {
		return fmt.Errorf("no usage %q", usage)
	}
	_, err = certificate.Verify(x509.VerifyOptions{
		DNSName:   name,
		Roots:     roots,
		KeyUsages: []x509.ExtKeyUsage{wanted},
	})
	return err
}
