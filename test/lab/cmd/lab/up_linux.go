package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/svcnet/svcnet/test/lab"
)

// isUp is the last line of what up prints; a detached one is left alone after it.
const isUp = "lab is up"

func up(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("lab up", flag.ContinueOnError)
	name := flags.String("name", "lab", "`name` of the lab, and prefix of its namespaces")
	nodes := flags.Int("nodes", 3, "how many nodes")
	backend := flags.String("backend", "nft", "iptables of the nodes: nft or legacy")
	mode := flags.String("mode", "iptables", "mode of kube-proxy: iptables or nftables")
	empty := flags.Bool("empty", false, "without the demo Services")
	detach := flags.Bool("detach", false, "return when it is up, and leave it in the background")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *detach {
		return upDetached(*name, append(args, "-detach=false"))
	}
	fmt.Println("building binaries first if need be: up to ten minutes, the first time")
	l, err := lab.Up(ctx, lab.Options{Name: *name, Nodes: *nodes, Backend: lab.Backend(*backend), Mode: *mode})
	if err != nil {
		return err
	}
	if err := show(ctx, os.Stdout, l, *empty); err != nil {
		return errors.Join(err, l.Down())
	}
	fmt.Println(isUp)
	<-ctx.Done()
	fmt.Println("taking it down")
	return l.Down()
}

// upDetached starts this program again and shows what it prints until it is up.
func upDetached(name string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	out, err := os.CreateTemp("", "svcnet-lab-"+name+"-*.out")
	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	defer out.Close()
	defer func() { _ = os.Remove(out.Name()) }() // the child keeps it open
	cmd := exec.Command(self, append([]string{"up"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // what it says is in its output
		close(ended)
	}()
	in, err := os.Open(out.Name())
	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	defer in.Close()
	return follow(in, ended)
}

func show(ctx context.Context, w io.Writer, l *lab.Lab, empty bool) error {
	if !empty {
		if err := addDemo(ctx, l); err != nil {
			return err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "namespaces:\n  %s-cp      etcd, kube-apiserver %s\n", l.Name, l.Paths.Version)
	for _, n := range l.Nodes {
		fmt.Fprintf(&b, "  %-11s %s %s, pods %s %s\n", n.Netns().Name, n.IPv4, n.IPv6, n.PodCIDRIPv4, n.PodCIDRIPv6)
	}
	fmt.Fprintf(&b, "  %-11s %s %s, routes to Services over n1\n", l.Client.Netns().Name, l.Client.IPv4, l.Client.IPv6)
	if !empty {
		b.WriteString(demoText)
	}
	fmt.Fprintf(&b, `files in %s: kubeconfigs, and a folder a node with the configuration and the log of kube-proxy
kubeconfig, inside of the namespaces: %s
enter:  lab shell -name %s -node n1      (KUBECONFIG and the node's iptables are set)
leave:  lab down -name %s
`, l.Dir, l.Kubeconfig("admin"), l.Name, l.Name)
	_, err := io.WriteString(w, b.String())
	return err
}
