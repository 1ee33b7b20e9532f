package main

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"syscall"
	"time"

	"github.com/svcnet/svcnet/collectors/snapshot"
	"github.com/svcnet/svcnet/explain"
	"github.com/svcnet/svcnet/test/scale"
)

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(0, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func main() {
	if os.Getenv("MEM") != "" {
		runtime.MemProfileRate = 16384
	} else {
		runtime.MemProfileRate = 0
	}
	rules := scale.IPTablesSave(10000, 5)
	lists := scale.Lists(10000, 5)
	s := &snapshot.Snapshot{Node: "node-1", Evidence: []snapshot.Evidence{{Format: snapshot.IPTablesSave, Family: 4, Backend: "nft", File: "iptables-save.txt", Status: snapshot.OK, Data: rules}}}
	for _, file := range slices.Sorted(maps.Keys(lists)) {
		s.Evidence = append(s.Evidence, snapshot.Evidence{Format: snapshot.Objects, File: file, Data: lists[file], Status: snapshot.OK})
	}
	f, _ := os.Create("/tmp/cpu.prof")
	n := 1
	if len(os.Args) > 1 {
		fmt.Sscan(os.Args[1], &n)
	}
	pprof.StartCPUProfile(f)
	for range n {
		a := cpu()
		var u0, u1 syscall.Rusage
		syscall.Getrusage(0, &u0)
		explain.Audit(s, explain.AuditOptions{})
		fmt.Print(cpu() - a)
		syscall.Getrusage(0, &u1)
		fmt.Println(" sys", time.Duration(u1.Stime.Nano()-u0.Stime.Nano()), "minflt", u1.Minflt-u0.Minflt)
	}
	pprof.StopCPUProfile()
	g, _ := os.Create("/tmp/mem.prof")
	runtime.GC()
	runtime.GC()
	pprof.Lookup("allocs").WriteTo(g, 0)
}
