// Command load is the client and the server that proxies are measured with. Both are event loops that cost little, so
// that what is measured is the proxy. Every run is bounded in time and in connections.
//
//	load serve -tcp 127.0.0.1:9001 -source 127.0.0.1:9002 -udp 127.0.0.1:9003
//	load connections -to ADDR -clients 64 -for 3s      connection, question, answer, end; and again
//	load requests -to ADDR -clients 1000 -for 3s [-rate 20000]  questions and answers on connections that stay
//	load transfer -to ADDR -clients 4 -for 3s          read as much as comes
//	load datagrams -to ADDR -rate 20000 -for 3s        one question from a new port each, as resolvers do
//
// The clients print one line of JSON.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// result is what a client saw.
type result struct {
	// Done are connections, requests, bytes or answers, Failed what went wrong or was lost, Sent what was asked.
	Done, Failed, Sent int64
	Seconds            float64
	// P50 and P99 are microseconds from a question to its answer; 0 where that is not measured.
	P50, P99 float64
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("what? serve, connections, requests, transfer or datagrams")
	}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	to := f.String("to", "", "address, or several with commas")
	clients := f.Int("clients", 64, "how many at once, at most 20000")
	rate := f.Int("rate", 0, "how many a second; 0: as many as go")
	span := f.Duration("for", 3*time.Second, "how long, at most 5m")
	size := f.Int("size", 100, "bytes of questions and answers")
	tcp, source, udp := f.String("tcp", "", "answer here (several with commas)"), f.String("source", "", "send without end here"), f.String("udp", "", "answer datagrams here")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if *clients < 1 || *clients > 20000 || *span > 5*time.Minute || *size < 1 || *size > 4096 {
		return errors.New("more than 20000 clients, 5 minutes or 4096 bytes is not for this program")
	}
	if args[0] == "serve" {
		return serve(*tcp, *source, *udp)
	}
	addrs, err := addresses(*to)
	if err != nil {
		return err
	}
	var out result
	switch args[0] {
	case "connections":
		out, err = (&asker{to: addrs, clients: *clients, span: *span, size: *size, again: true}).run()
	case "requests":
		out, err = (&asker{to: addrs, clients: *clients, span: *span, size: *size, rate: *rate}).run()
	case "transfer":
		out, err = transfer(addrs, *clients, *span)
	case "datagrams":
		out, err = datagrams(addrs, *rate, *span, *size)
	default:
		return fmt.Errorf("what is %q?", args[0])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func addresses(text string) ([]unix.Sockaddr, error) {
	var out []unix.Sockaddr
	for _, s := range strings.Split(text, ",") {
		a, err := netip.ParseAddrPort(s)
		if err != nil {
			return nil, err
		}
		out = append(out, sockaddr(a))
	}
	return out, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// family is that of an address.
func family(sa unix.Sockaddr) int {
	if _, ok := sa.(*unix.SockaddrInet4); ok {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// percentile of latencies in nanoseconds, in microseconds.
func percentile(sorted []int64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]) / 1000
}

func summarize(r *result, took []int64) {
	slices.Sort(took)
	r.P50, r.P99 = percentile(took, 0.5), percentile(took, 0.99)
}
