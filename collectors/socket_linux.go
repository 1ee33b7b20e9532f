package collectors

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// readSockets reads sockets that wait for packets, in the text of `ss -lnup`, `-t` and `-S`. They come from files of
// /proc and not from sock_diag, which loads modules when it is asked.
//
// Those files tell neither which interface a socket is bound to nor whether one on [::] takes IPv4. Such a socket
// is written as ss wrote it while it read the same files: ":::80", which leaves open what "*:80" (both families)
// and "[::]:80" (IPv6 alone) would claim.
func readSockets(ctx context.Context, p *place) []snapshot.Evidence {
	file := p.dir + "ss.txt"
	var (
		sockets []listening
		seen    bool
		failed  error
	)
	for _, source := range socketFiles() {
		some, err := readSocketFile(ctx, "/proc/thread-self/net/"+source.file, source)
		sockets = append(sockets, some...)
		switch {
		case err == nil:
			seen = true
		case ctx.Err() != nil:
			return []snapshot.Evidence{couldNot(file, snapshot.SocketList, "sockets", ctx.Err())}
		case !errors.Is(err, fs.ErrNotExist):
			failed = err
		}
	}
	if !seen {
		if failed == nil {
			failed = errors.New("/proc shows no sockets")
		}
		return []snapshot.Evidence{couldNot(file, snapshot.SocketList, "sockets", reasonOf(failed))}
	}
	owners, hidden := socketOwners(ctx, sockets)
	e := evidence(file, snapshot.SocketList, writeSockets(sockets, owners))
	if failed != nil {
		e.Status = snapshot.Truncated
		e.Error = fmt.Sprintf("read sockets: %v: some are missing", reasonOf(failed))
	}
	if slices.ContainsFunc(sockets, func(s listening) bool { return owners[s.inode] == nil }) {
		e.Note = hidden
	}
	return []snapshot.Evidence{e}
}

// listening is a socket that waits for packets.
type listening struct {
	netid string
	state string
	recvQ uint64
	sendQ uint64
	local netip.AddrPort
	inode uint64
}

// socketSource is a file of sockets with how to read its lines.
type socketSource struct {
	file string
	read func(line []byte) (sockets []listening, more bool)
}

func socketFiles() []socketSource {
	return []socketSource{
		{"udp", udpLine}, {"udp6", udpLine}, {"tcp", tcpLine}, {"tcp6", tcpLine}, {"sctp/eps", sctpLine},
	}
}

// readSocketFile reads a line at a time: a busy node has a million connections.
func readSocketFile(ctx context.Context, file string, source socketSource) ([]listening, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return scanSockets(ctx, f, source.read)
}

func scanSockets(ctx context.Context, from io.Reader, read func(line []byte) ([]listening, bool)) ([]listening, error) {
	var out []listening
	in := bufio.NewReaderSize(from, 64<<10)
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return out, ctx.Err()
		}
		line, err := in.ReadSlice('\n')
		if err == nil || err == io.EOF {
			some, more := read(line)
			out = append(out, some...)
			if !more {
				return out, nil
			}
		}
		switch {
		case err == io.EOF:
			return out, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return out, err
		}
	}
}

// States of sockets as the files number them.
const (
	stateListen  = "0A"
	stateSynRecv = "03"
	stateClose   = "07"
)

// tcpLine reads "0: 0100007F:0035 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 12345 …". The kernel
// lists all listening sockets before any connection, with only half-open ones in between (before Linux 4.4), so
// that the first connection ends the reading.
func tcpLine(line []byte) ([]listening, bool) {
	s, state, ok := procSocket(line)
	switch {
	case !ok:
		return nil, true
	case state == stateListen:
		s.netid, s.state = "tcp", "LISTEN"
		return []listening{s}, true
	}
	return nil, state == stateSynRecv
}

// udpLine reads a line as tcpLine does. Connected sockets take packets of one peer alone.
func udpLine(line []byte) ([]listening, bool) {
	s, state, ok := procSocket(line)
	if !ok || state != stateClose {
		return nil, true
	}
	s.netid, s.state = "udp", "UNCONN"
	return []listening{s}, true
}

// procSocket reads the columns that tcp and udp have in common.
func procSocket(line []byte) (s listening, state string, ok bool) {
	words := strings.Fields(string(line))
	if len(words) < 10 {
		return s, "", false
	}
	if s.local, ok = procAddrPort(words[1]); !ok {
		return s, "", false
	}
	send, recv, _ := strings.Cut(words[4], ":")
	s.sendQ, _ = strconv.ParseUint(send, 16, 64)
	s.recvQ, _ = strconv.ParseUint(recv, 16, 64)
	var err error
	s.inode, err = strconv.ParseUint(words[9], 10, 64)
	return s, words[3], err == nil
}

// procAddrPort reads "0100007F:0035": each four bytes of the address are a number in the byte order of the
// machine, the port is one as people write it.
func procAddrPort(s string) (netip.AddrPort, bool) {
	address, number, _ := strings.Cut(s, ":")
	port, err := strconv.ParseUint(number, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	raw, err := hex.DecodeString(address)
	if err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	for word := raw; len(word) > 0; word = word[4:] {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr, uint16(port)), ok
}

// sctpLine reads an endpoint: "0 0 2 10 85 5000 0 12345 10.0.0.1 10.0.1.1". The fourth column is the state, as tcp
// numbers it but in decimal; all of its addresses listen.
func sctpLine(line []byte) ([]listening, bool) {
	words := strings.Fields(string(line))
	if len(words) < 9 || words[3] != "10" {
		return nil, true
	}
	port, err := strconv.ParseUint(words[5], 10, 16)
	if err != nil {
		return nil, true
	}
	inode, err := strconv.ParseUint(words[7], 10, 64)
	if err != nil {
		return nil, true
	}
	var out []listening
	for _, w := range words[8:] {
		addr, err := netip.ParseAddr(strings.TrimPrefix(w, "*")) // the primary one is starred
		if err != nil {
			continue
		}
		out = append(out, listening{netid: "sctp", state: "LISTEN", local: netip.AddrPortFrom(addr, uint16(port)), inode: inode})
	}
	return out, true
}

func writeSockets(sockets []listening, owners map[uint64][]owner) []byte {
	var b bytes.Buffer
	b.WriteString("Netid State  Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n")
	for _, s := range sockets {
		host, peer := s.local.Addr().String(), "0.0.0.0:*"
		switch addr := s.local.Addr(); {
		case addr.Is6() && addr.IsUnspecified():
			peer = ":::*"
		case addr.Is6():
			host, peer = "["+host+"]", ":::*"
		}
		fmt.Fprintf(&b, "%-5s %-6s %-6d %-6d %s:%d %s%s\n", s.netid, s.state, s.recvQ, s.sendQ, host, s.local.Port(), peer, usersOf(owners[s.inode]))
	}
	return b.Bytes()
}
