// services stands in for a cluster's DNS and kube-proxy: it answers for the names of Services, and passes on what comes to their
// addresses, which have to be addresses of this machine.
package main

import (
	"io"
	"log"
	"net"
	"os"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

const usage = "usage: services DNS-ADDRESS [NAME=ADDRESS:PORT=TARGET:PORT]..."

func main() {
	if len(os.Args) < 2 {
		log.Fatal(usage)
	}
	names := map[string][4]byte{}
	for _, service := range os.Args[2:] {
		parts := strings.Split(service, "=")
		if len(parts) != 3 {
			log.Fatal(usage)
		}
		address, err := net.ResolveTCPAddr("tcp4", parts[1])
		if err != nil {
			log.Fatal(err)
		}
		names[parts[0]+"."] = [4]byte(address.IP.To4())
		listener, err := net.ListenTCP("tcp4", address)
		if err != nil {
			log.Fatal(err)
		}
		go accept(listener, parts[2])
	}
	socket, err := net.ListenPacket("udp4", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	log.Print("ready")
	question := make([]byte, 512)
	for {
		length, from, err := socket.ReadFrom(question)
		if err != nil {
			log.Fatal(err)
		}
		answer, err := answer(question[:length], names)
		if err != nil {
			log.Print(err)
			continue
		}
		socket.WriteTo(answer, from)
	}
}

// A name that is known has one address of version 4 and none of version 6.
func answer(packet []byte, names map[string][4]byte) ([]byte, error) {
	var message dnsmessage.Message
	if err := message.Unpack(packet); err != nil {
		return nil, err
	}
	message.Response, message.Authoritative, message.RecursionAvailable = true, true, true
	message.Answers, message.Authorities, message.Additionals = nil, nil, nil
	for _, question := range message.Questions {
		address, known := names[strings.ToLower(question.Name.String())]
		log.Print(question.Name, " ", question.Type, " ", known)
		if !known {
			message.RCode = dnsmessage.RCodeNameError
		} else if question.Type == dnsmessage.TypeA {
			header := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 5}
			resource := dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: address}}
			message.Answers = append(message.Answers, resource)
		}
	}
	return message.Pack()
}

func accept(listener net.Listener, target string) {
	for {
		outside, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go pass(outside.(*net.TCPConn), target)
	}
}

func pass(outside *net.TCPConn, target string) {
	defer outside.Close()
	connection, err := net.Dial("tcp", target)
	if err != nil {
		log.Print(err)
		return
	}
	inside := connection.(*net.TCPConn)
	defer inside.Close()
	go func() {
		io.Copy(inside, outside)
		inside.CloseWrite()
	}()
	io.Copy(outside, inside)
	outside.CloseWrite()
}
