package collectors

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// EnterRoot makes dir the root of the calling goroutine's thread, and of nobody else: in a pod, dir is where the
// host's root is mounted, and what the thread opens and runs from then on is the node's: its /proc and /sys, its
// configuration and logs, and its own iptables-nft-save, nft and ipset, whose versions wrote the rules. Files that
// svcnet itself names (a kubeconfig, the service account, the bundle) stay those of the pod, because other threads
// open them.
//
// The goroutine is locked to its thread for good; the runtime ends the thread with it. It takes CAP_SYS_CHROOT. The
// pod's network namespace must be the host's (hostNetwork); its processes need not be (hostPID): the host's /proc
// shows them all.
func EnterRoot(dir string) error {
	runtime.LockOSThread()
	fail := func(err error, next string) error {
		return fmt.Errorf("enter the root %s: %w (%s)", dir, err, next)
	}
	// Both would be found later as many sources that fail.
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fail(err, "mount the host's / there, or name where it is with --root")
	}
	if err := unix.Stat(filepath.Join(dir, "proc/thread-self/ns/net"), &st); err != nil {
		return fail(errors.New("it has no /proc of this kernel"), "mount the host's / there with what is mounted below it, or name where it is with --root")
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fail(err, "run svcnet where it may use unshare")
	}
	if err := unix.Chroot(dir); err != nil {
		return fail(err, "run as root with CAP_SYS_CHROOT")
	}
	if err := unix.Chdir("/"); err != nil {
		return fail(err, "run as root")
	}
	return nil
}

// rootDenied is what is read of a node whose root may not be entered: nothing, of everything that an answer rests on.
func rootDenied(node string, err error) *snapshot.Snapshot {
	s := &snapshot.Snapshot{Node: node}
	for file, f := range map[string]snapshot.Format{
		"iptables-nft-save.txt": snapshot.IPTablesSave, "ip6tables-nft-save.txt": snapshot.IPTablesSave, nftFile: snapshot.NFTNetlink,
		ipsetFile: snapshot.IPSetSave, ipvsFile: snapshot.IPVSSave,
		"ip-addr.txt": snapshot.IPAddr, "ip-route.txt": snapshot.IPRoute, "ip-rule.txt": snapshot.IPRule,
		"sysctl.txt": snapshot.Sysctl, "conntrack.txt": snapshot.Conntrack, "ss.txt": snapshot.SocketList,
		proxyArgsFile: snapshot.ProxyArgs,
	} {
		s.Evidence = append(s.Evidence, missed(file, f, snapshot.Denied, fmt.Errorf("read %s: %w", file, err)))
	}
	s.Arrange()
	return s
}

// onThread runs f on a thread that is not used again: what f does to the thread (its root, its namespaces) no other
// goroutine sees, because the runtime ends a thread whose goroutine ends locked.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}
