// gVisor's row of tcp-inprocess: a TCP stream between two stacks of gVisor's netstack, joined by a cable in memory.
//
// stream SEGMENTS carries the octets of so many segments of 1448 octets, as often before it measures, and prints the nanoseconds
// that one took and how many frames came back for each that went. All goroutines share one thread.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	segmentOctets = 1448
	writeOctets   = 16 * 1024
	bufferOctets  = 256 * 1024
	frameOctets   = 1514
	port          = 7
	nic           = 1
)

func check(what string, err any) {
	switch err := err.(type) {
	case nil:
		return
	case tcpip.Error:
		fmt.Fprintln(os.Stderr, what, err)
	case error:
		fmt.Fprintln(os.Stderr, what, err)
	}
	os.Exit(1)
}

// host makes one end: a stack with Ethernet, ARP, IPv4 and TCP above a queue of frames.
func host(number byte) (*stack.Stack, *channel.Endpoint, tcpip.Address) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	sending := tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: bufferOctets, Max: bufferOctets}
	if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, &sending); err != nil {
		check("send buffer", err)
	}
	receiving := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: bufferOctets, Max: bufferOctets}
	if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, &receiving); err != nil {
		check("receive buffer", err)
	}
	link := channel.New(4096, frameOctets, tcpip.LinkAddress([]byte{2, 0, 0, 0, 0, number}))
	if err := s.CreateNIC(nic, ethernet.New(link)); err != nil {
		check("interface", err)
	}
	address := tcpip.AddrFrom4([4]byte{10, 0, 0, number})
	protocol := tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: address, PrefixLen: 24},
	}
	if err := s.AddProtocolAddress(nic, protocol, stack.AddressProperties{}); err != nil {
		check("address", err)
	}
	subnet := protocol.AddressWithPrefix.Subnet()
	s.SetRouteTable([]tcpip.Route{{Destination: subnet, NIC: nic}})
	return s, link, address
}

// carry hands frames over, two at a time, and lets whoever gets them have its turn.
func carry(from, to *channel.Endpoint, count *atomic.Uint64) {
	for {
		frame := from.ReadContext(context.Background())
		for n := 0; frame != nil; n++ {
			arrived := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: frame.ToBuffer()})
			frame.DecRef()
			count.Add(1)
			to.InjectInbound(header.IPv4ProtocolNumber, arrived)
			arrived.DecRef()
			if n == 1 {
				break
			}
			frame = from.Read()
		}
		runtime.Gosched()
	}
}

func main() {
	if len(os.Args) < 2 {
		check("how many segments?", fmt.Errorf("none are named"))
	}
	segments, err := strconv.ParseUint(os.Args[1], 10, 64)
	if err != nil {
		check("how many segments?", err)
	}
	runtime.GOMAXPROCS(1)
	client, one, _ := host(1)
	server, two, address := host(2)
	var there, back, received atomic.Uint64
	go carry(one, two, &there)
	go carry(two, one, &back)
	peer := tcpip.FullAddress{NIC: nic, Addr: address, Port: port}
	listener, err := gonet.ListenTCP(server, peer, ipv4.ProtocolNumber)
	if err != nil {
		check("listen", err)
	}
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			check("accept", err)
		}
		buffer := make([]byte, bufferOctets)
		for {
			octets, err := conn.Read(buffer)
			if err != nil {
				return
			}
			received.Add(uint64(octets))
		}
	}()
	conn, err := gonet.DialTCP(client, peer, ipv4.ProtocolNumber)
	if err != nil {
		check("connect", err)
	}
	data := make([]byte, writeOctets)
	stream := func() {
		until := received.Load() + segments*segmentOctets
		for received.Load() < until {
			if _, err := conn.Write(data); err != nil {
				check("write", err)
			}
		}
	}
	stream()
	frames, answers, begun := there.Load(), back.Load(), time.Now()
	stream()
	ns := float64(time.Since(begun).Nanoseconds())
	fmt.Printf("%f %f\n", ns/float64(segments), float64(back.Load()-answers)/float64(there.Load()-frames))
}
