// Command record records nodes for the tests of package recorded: it starts each version of kube-proxy on a node of
// package lab that has the same objects, and keeps what svcnet collects there.
//
//	record [-out test/recorded/testdata] [-mode iptables,nftables,ipvs] [VERSION...]
//
// VERSION is a minor version such as 1.29; all of them are recorded when none is given, in all modes. It needs root and Linux, and is
// run in the root of the repository. Versions that were never built on the machine take some minutes each. IPVS mode is
// recorded in a kernel of package uml, all versions in one boot.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/svcnet/svcnet/test/lab"
	"github.com/svcnet/svcnet/test/uml"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	out := flag.String("out", filepath.Join("test", "recorded", "testdata"), "`folder` to write the recordings to")
	modes := flag.String("mode", "iptables,nftables,ipvs", "`modes` of kube-proxy to record")
	inside := flag.String("inside", "", "the `svcnet` to record with: this is the process in the guest, and only records")
	flag.Parse()
	if err := record(ctx, *out, *inside, strings.Split(*modes, ","), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// record records the wanted versions, all when there are none, one after the other on one lab: their objects are the
// same to the byte.
func record(ctx context.Context, out, svcnet string, modes, wanted []string) (err error) {
	if _, err := os.Stat(out); err != nil {
		return fmt.Errorf("find the folder of the recordings: %w; run this in the root of the repository", err)
	}
	proxies, err := build(ctx, wanted)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "svcnet-record-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	inGuest := svcnet != ""
	if !inGuest {
		svcnet = filepath.Join(temp, "svcnet")
		if said, err := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", svcnet, "./cmd/kubectl-svcnet").CombinedOutput(); err != nil {
			return fmt.Errorf("build svcnet: %w: %s", err, said)
		}
		if slices.Contains(modes, modeIPVS) {
			if err := recordInGuest(ctx, out, svcnet, proxies); err != nil {
				return err
			}
			if modes = slices.DeleteFunc(modes, func(m string) bool { return m == modeIPVS }); len(modes) == 0 {
				return nil
			}
		}
	}
	s, err := newStage(ctx, svcnet, temp, inGuest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.lab.Down()) }()
	one := func(p lab.Proxy, mode string) error {
		fmt.Fprintln(os.Stderr, "recording kube-proxy", p.Version, "in", mode, "mode")
		if err := s.record(ctx, p, mode, filepath.Join(out, folderOf(p.Version, mode))); err != nil {
			return fmt.Errorf("record kube-proxy %s in %s mode: %w", p.Version, mode, err)
		}
		return nil
	}
	for _, mode := range modes {
		for _, p := range proxies {
			if some, ok := versionsOf[mode]; ok && !slices.Contains(some, minorOf(p.Version)) || mode == modeNFTables && minorOf(p.Version) == "1.29" {
				continue
			}
			if err := one(p, mode); err != nil {
				return err
			}
		}
	}
	// Of a source range that holds everything nftables mode of 1.29 makes two elements that overlap, and no sync of it
	// ever succeeds: it is recorded last, without the Service that has one.
	if proxies[0].Version[:5] != "v1.29" || !slices.Contains(modes, modeNFTables) {
		return nil
	}
	if err := s.remove(ctx, "balancer-ranges-all"); err != nil {
		return err
	}
	return one(proxies[0], modeNFTables)
}

// recordInGuest has this program record IPVS mode in a guest.
func recordInGuest(ctx context.Context, out, svcnet string, proxies []lab.Proxy) error {
	if why := uml.Missing(); why != "" {
		return errors.New("record IPVS mode: " + why)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	var minors []string
	for _, p := range proxies {
		minors = append(minors, minorOf(p.Version))
	}
	g, begin, err := lab.InGuest(out)
	if err != nil {
		return err
	}
	said, err := g.Boot(ctx, fmt.Sprintf("%scd %s && %s -inside %s -mode %s -out %s %s\n", begin, here, self, svcnet, modeIPVS, out, strings.Join(minors, " ")))
	fmt.Fprint(os.Stderr, said)
	return err
}

// The modes that not every version is recorded in.
const (
	modeNFTables = "nftables"
	modeIPVS     = "ipvs"
)

// versionsOf are the versions of which a mode is recorded: of nftables mode one of each generation of its tables, of IPVS
// mode the first with the filters of today and the last.
var versionsOf = map[string][]string{
	modeNFTables: {"1.29", "1.31", "1.33", "1.34", "1.36"},
	modeIPVS:     {"1.29", "1.33", "1.36"},
}

// folderOf names a recording: "kube-proxy-1.29-iptables-nft" for v1.29.6, "kube-proxy-1.29-nftables" in that mode.
func folderOf(version, mode string) string {
	if mode == modeNFTables || mode == modeIPVS {
		return fmt.Sprintf("kube-proxy-%s-%s", minorOf(version), mode)
	}
	return fmt.Sprintf("kube-proxy-%s-iptables-%s", minorOf(version), lab.NFT)
}

func minorOf(version string) string {
	minor := strings.TrimPrefix(version, "v")
	return minor[:strings.LastIndexByte(minor, '.')]
}

// versions are the minor versions beside the control plane's own, oldest first: what one leaves in the kernel beside
// rules (counters of nfacct, since 1.31), an older one would not have.
var versions = []string{"1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35"}

// build builds the wanted versions, or finds them built.
func build(ctx context.Context, wanted []string) ([]lab.Proxy, error) {
	fmt.Fprintln(os.Stderr, "looking for the binaries; building those of one version takes minutes the first time")
	paths, err := lab.Binaries(ctx)
	if err != nil {
		return nil, err
	}
	newest := minorOf(paths.Version)
	for _, w := range wanted {
		if w != newest && !slices.Contains(versions, w) {
			return nil, fmt.Errorf("there is no kube-proxy %s: %s, %s", w, strings.Join(versions, ", "), newest)
		}
	}
	var out []lab.Proxy
	for _, minor := range versions {
		if len(wanted) > 0 && !slices.Contains(wanted, minor) {
			continue
		}
		p, err := lab.KubeProxy(ctx, minor)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	if len(wanted) == 0 || slices.Contains(wanted, newest) {
		out = append(out, lab.Proxy{Path: paths.KubeProxy, Version: paths.Version})
	}
	return out, nil
}
