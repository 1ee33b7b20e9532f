package apply

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/report"
)

// inOwnNetwork runs in a network namespace of its own, which goes with the thread.
func inOwnNetwork(t *testing.T, do func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: makes a network namespace")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func runBatch(input string) error {
	do, err := setAddresses(report.RepairCommand{Command: []string{"ip", "-batch", "-"}, Input: input})
	if err != nil {
		return err
	}
	return do()
}

// shown is what ip says of the addresses of kube-ipvs0.
func shown(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("ip", "-o", "addr", "show", "dev", "kube-ipvs0").CombinedOutput()
	if err != nil {
		return strings.TrimSpace(string(out))
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		w := strings.Fields(line)
		all = append(all, w[2]+" "+w[3])
	}
	return strings.Join(all, ", ")
}

// TestAddresses: lines do to a kernel what ip shows afterwards, and doing them again changes nothing.
func TestAddresses(t *testing.T) {
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("no ip")
	}
	inOwnNetwork(t, func() {
		const there = "inet 10.96.0.1/32, inet6 fd00:96::1/128"
		inputs := []struct{ input, want string }{
			{"link add kube-ipvs0 type dummy\naddr add 10.96.0.1/32 dev kube-ipvs0\naddr add fd00:96::1/128 dev kube-ipvs0\n", there},
			{"addr del 10.96.0.1/32 dev kube-ipvs0\naddr add 10.96.0.2/32 dev kube-ipvs0\n", "inet 10.96.0.2/32, inet6 fd00:96::1/128"},
			{"addr add 10.96.0.1/32 dev kube-ipvs0\naddr del 10.96.0.2/32 dev kube-ipvs0\n", there},
			{"link del kube-ipvs0\n", `Device "kube-ipvs0" does not exist.`},
		}
		dummies := exec.Command("ip", "link", "add", "kube-ipvs0", "type", "dummy").Run() == nil
		if dummies {
			if out, err := exec.Command("ip", "link", "del", "kube-ipvs0").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		} else {
			// The rest is tried on a bridge of that name; devices of type dummy on a kernel that has them (TestInGuest).
			bridge(t)
			inputs = inputs[:3]
			inputs[0].input = strings.TrimPrefix(inputs[0].input, "link add kube-ipvs0 type dummy\n")
		}
		for i, tt := range inputs {
			for again := range 2 {
				if err := runBatch(tt.input); err != nil {
					t.Errorf("input %d, time %d: %v", i, again, err)
				}
				if got := shown(t); got != tt.want {
					t.Errorf("input %d, time %d: %s, want %s", i, again, got, tt.want)
				}
			}
		}
		if !dummies {
			if out, err := exec.Command("ip", "link", "del", "kube-ipvs0").CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
		// An address of a device that is not there.
		err := runBatch("addr del 10.96.0.1/32 dev kube-ipvs0\naddr add 10.96.0.1/32 dev kube-ipvs0\n")
		if err == nil || !strings.Contains(err.Error(), "line 2 (addr add 10.96.0.1/32 dev kube-ipvs0)") {
			t.Errorf("%v", err)
		}
		// A device of that name that is another one's.
		bridge(t)
		if err := runBatch("link del kube-ipvs0\n"); err == nil || !strings.Contains(err.Error(), "no dummy") {
			t.Errorf("a bridge: %v", err)
		}
	})
}

// bridge makes a device of that name that is no dummy.
func bridge(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("ip", "link", "add", "kube-ipvs0", "type", "bridge").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAddressesNotUnderstood: what is no line of a step is refused before anything is done.
func TestAddressesNotUnderstood(t *testing.T) {
	for _, line := range []string{"addr add 10.96.0.1 dev kube-ipvs0", "addr flush dev kube-ipvs0", "link add eth0 type dummy", "link del eth0",
		"addr add 10.96.0.1/32 dev eth0", "link add kube-ipvs0 type bridge", "route add default", "addr add kube-ipvs0/32 dev eth0", "addr add 10.96.0.1/99 dev kube-ipvs0"} {
		if _, err := setAddresses(report.RepairCommand{Command: []string{"ip", "-batch", "-"}, Input: "\n" + line + "\n"}); err == nil || !strings.Contains(err.Error(), "line 2 ("+line) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
