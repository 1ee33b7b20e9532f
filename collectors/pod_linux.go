package collectors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// podSources are what is read of a pod's own network namespace: the rules of a sidecar or a CNI plugin, and who
// listens there.
var podSources = []source{
	{name: "iptables", read: readIPTables},
	{name: "nft", read: readNFT},
	{name: "addr", read: readAddrs},
	{name: "route", read: readRoutes},
	{name: "rule", read: readRules},
	{name: "sysctl", read: readSysctls},
	{name: "socket", read: readSockets},
}

// readPods reads the network namespaces of the pods that are asked for. podList is the pods of this node as the API has
// them, empty where it was not read.
func (p *place) readPods(ctx context.Context, o Options, podList []byte) []snapshot.Evidence {
	known := o.Known
	if len(o.Pods) > 0 && known == nil {
		known = podsIn(podList)
	}
	var out []snapshot.Evidence
	for _, pod := range o.Pods {
		out = append(out, p.readPod(ctx, pod, known)...)
	}
	return out
}

// podsIn are the pods of a list as the API writes it, nil when it is none.
func podsIn(podList []byte) []*corev1.Pod {
	var list struct{ Items []*corev1.Pod }
	if len(podList) == 0 || json.Unmarshal(podList, &list) != nil {
		return nil
	}
	return list.Items
}

func (p *place) readPod(ctx context.Context, pod string, known []*corev1.Pod) []snapshot.Evidence {
	dir := snapshot.PodDir(pod)
	could := func(err error) []snapshot.Evidence {
		return []snapshot.Evidence{couldNot(dir+"iptables-nft-save.txt", snapshot.IPTablesSave, "the network namespace of pod "+pod, err)}
	}
	addrs, err := podAddrs(known, pod)
	if err != nil {
		// There was nothing to try: nothing failed.
		e := missed(dir+"iptables-nft-save.txt", snapshot.IPTablesSave, snapshot.NotCollected, fmt.Errorf("read the network namespace of pod %s: %w", pod, err))
		return []snapshot.Evidence{e}
	}
	file, err := p.namespaceWith(addrs)
	if err != nil {
		return could(err)
	}
	inside := &place{dir: dir, root: p.root, timeout: p.timeout, kernel: p.kernel}
	var out []snapshot.Evidence
	if err := p.within(file, func() { out = inside.readAll(ctx, podSources) }); err != nil {
		return could(err)
	}
	return out
}

// podAddrs are the addresses of a pod of this node.
func podAddrs(known []*corev1.Pod, pod string) ([]netip.Addr, error) {
	if known == nil {
		return nil, errors.New("its addresses are not known, because the pods of this node were not read (see pods.json)")
	}
	for _, it := range known {
		if it == nil || it.Namespace+"/"+it.Name != pod {
			continue
		}
		if it.Spec.HostNetwork {
			return nil, errors.New("it has none of its own: it uses the node's, which is read anyway (hostNetwork)")
		}
		var out []netip.Addr
		for _, ip := range it.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				out = append(out, a)
			}
		}
		if len(out) == 0 {
			return nil, errors.New("it has no address yet")
		}
		return out, nil
	}
	return nil, errors.New("it is no pod of this node (run svcnet on the node where it is)")
}

// namespaceWith finds the network namespace that has one of the addresses: among those of the processes, then
// among those that container runtimes keep by name. The path is of a file that stands for it.
//
// Addresses of pods are private, and a machine may have several namespaces with one: of nodes that are containers
// themselves, of a pod that is gone. The pod's own is then the one that an interface joins to this namespace.
func (p *place) namespaceWith(addrs []netip.Addr) (string, error) {
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return "", reasonOf(err)
	}
	seen := map[string]bool{own: true}
	denied := 0
	var found []string
	check := func(file, id string) {
		if seen[id] {
			return
		}
		seen[id] = true
		has := false
		if err := p.within(file, func() {
			has = slices.ContainsFunc(ownAddrs(), func(a netip.Addr) bool { return slices.Contains(addrs, a) })
		}); err != nil {
			denied++
		}
		if has {
			found = append(found, file)
		}
	}
	for _, pid := range processes() {
		file := fmt.Sprintf("/proc/%d/ns/net", pid)
		id, err := os.Readlink(file)
		if errors.Is(err, os.ErrPermission) {
			denied++
			continue
		}
		if err == nil {
			check(file, id)
		}
	}
	for _, pattern := range []string{"/run/netns/*", "/var/run/netns/*", "/proc/1/root/run/netns/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		for _, file := range files {
			var st unix.Stat_t
			if unix.Stat(file, &st) == nil {
				check(file, fmt.Sprintf("net:[%d]", st.Ino))
			}
		}
	}
	if len(found) > 1 {
		if joined := slices.DeleteFunc(slices.Clone(found), func(file string) bool { return !joinedTo(file) }); len(joined) > 0 {
			found = joined
		}
	}
	var list []string
	for _, a := range addrs {
		list = append(list, a.String())
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", fmt.Errorf("%d network namespaces of this machine have its address (%s), and nothing tells which of them is its own (run svcnet where only this node's processes are seen)",
			len(found), strings.Join(list, ", "))
	case denied > 0:
		return "", fmt.Errorf("namespaces of other processes: %w", os.ErrPermission)
	}
	return "", fmt.Errorf("no process is in a namespace with its address (%s): in a container, svcnet needs the host's processes (hostPID)", strings.Join(list, ", "))
}

// joinedTo tells whether an interface of the thread's network namespace, as one end of a veth, has its other end in
// the one of a file: the kernel then has a number for that namespace here. Asking gives it none.
func joinedTo(file string) bool {
	ns, err := os.Open(file)
	if err != nil {
		return false
	}
	defer ns.Close()
	id, err := netlink.GetNetNsIdByFd(int(ns.Fd()))
	return err == nil && id >= 0
}

// within runs f on a thread of the place's root that has entered the network namespace of a file.
func (p *place) within(file string, f func()) error {
	return onThread(func() error {
		if p.root != "" {
			if err := EnterRoot(p.root); err != nil {
				return err
			}
		}
		ns, err := os.Open(file)
		if err != nil {
			return reasonOf(err)
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter it: %w", err)
		}
		f()
		return nil
	})
}
