// apiserver-forwarder lets those outside a network namespace connect to an address inside of it. Its standard input is a socket that
// listens outside: a socket stays in the namespace it was made in, whoever accepts from it.
package main

import (
	"io"
	"log"
	"net"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: apiserver-forwarder ADDRESS <LISTENING-SOCKET")
	}
	listener, err := net.FileListener(os.Stdin)
	if err != nil {
		log.Fatalf("standard input is no listening socket: %v", err)
	}
	for {
		outside, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go pass(outside, os.Args[1])
	}
}

func pass(outside net.Conn, address string) {
	defer outside.Close()
	inside, err := net.Dial("tcp", address)
	if err != nil {
		log.Print(err)
		return
	}
	defer inside.Close()
	go func() {
		io.Copy(inside, outside)
		closeWrite(inside)
	}()
	io.Copy(outside, inside)
	closeWrite(outside)
}

func closeWrite(connection net.Conn) {
	if half, ok := connection.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}
