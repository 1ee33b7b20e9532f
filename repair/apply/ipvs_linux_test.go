package apply

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/svcnet/svcnet/explain/report"
)

// insideFlag marks the process that runs in a guest of package test/uml.
const insideFlag = "SVCNET_APPLY_INSIDE"

// TestInGuest is for a machine that a test has made, whose kernel has IPVS and devices of type dummy: see
// TestWriting of test/uml.
func TestInGuest(t *testing.T) {
	if os.Getenv(insideFlag) == "" {
		return // no test here
	}
	t.Run("no IPVS", func(t *testing.T) {
		modules := func() string {
			b, err := os.ReadFile("/proc/modules")
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		before := modules()
		if err := runRestore("-D -t 10.96.0.1:443\n"); err == nil || !strings.Contains(err.Error(), "no ip_vs loaded") {
			t.Errorf("%v", err)
		}
		if diff := cmp.Diff(before, modules()); diff != "" || strings.Contains(before, "ip_vs") {
			t.Errorf("modules before and after:\n%s", diff)
		}
	})
	if out, err := exec.Command("modprobe", "ip_vs").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Run("virtual servers", serversAsIpvsadm)
	t.Run("addresses", TestAddresses)
}

func runRestore(input string) error {
	do, err := setServers(report.RepairCommand{Command: []string{"ipvsadm", "-R"}, Input: input})
	if err != nil {
		return err
	}
	return do()
}

// saved is what ipvsadm says of the virtual servers, with the bounds of real servers.
func saved(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, args := range [][]string{{"-Sn"}, {"-Ln", "--thresholds"}} {
		text, err := exec.Command("ipvsadm", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("ipvsadm %s: %v: %s", args, err, text)
		}
		for line := range strings.Lines(string(text)) {
			out = append(out, strings.Join(strings.Fields(line), " "))
		}
	}
	slices.Sort(out)
	return out
}

// serverInputs are done one after the other.
var serverInputs = []string{
	`-A -t 10.96.0.1:443 -s rr -p 10800
-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1
-a -t 10.96.0.1:443 -r 10.0.0.2:443 -g -w 3 -x 100 -y 50
-A -u [fd00:96::1]:53 -s rr
-a -u [fd00:96::1]:53 -r [fd00:244::1]:5353 -m -w 1
-A --sctp-service 10.96.0.3:3868 -s rr
-A -f 16384 -s wrr
-a -f 16384 -r 10.244.1.20:8080 -m -w 7
-A -f 16384 -6 -s rr -p 60 -M 64
-A -t 10.96.0.4:80 -s sh -b sh-fallback,sh-port
-A -t [fd00:96::5]:80 -s mh -b mh-port
-A -u 10.96.0.6:5060 -s rr -p 300 -M 255.255.255.0 --pe sip
-A -u 10.96.0.7:69 -s lc -o
-A -t 10.96.0.8:80 -s rr
-a -t 10.96.0.8:80 -r 10.0.0.3:80 -i -w 1 --tun-type gue --tun-port 6080 --tun-nocsum
-a -t 10.96.0.8:80 -r 10.0.0.4:80 -i -w 1 --tun-type gre --tun-csum
-a -t 10.96.0.8:80 -r 10.0.0.5:80 -i -w 1
`,
	`-E -t 10.96.0.1:443 -s rr
-e -t 10.96.0.1:443 -r 10.0.0.2:443 -m -w 1
-a -t 10.96.0.1:443 -r 10.0.0.3:6443 -m -w 1
-d -t 10.96.0.1:443 -r 10.0.0.1:6443
-E -u [fd00:96::1]:53 -s lc -p 77
-e -u [fd00:96::1]:53 -r [fd00:244::1]:5353 -m -w 0
-D --sctp-service 10.96.0.3:3868
-D -f 16384 -6
-E -t 10.96.0.4:80 -s rr
-E -u 10.96.0.6:5060 -s rr
-E -u 10.96.0.7:69 -s rr
-e -t 10.96.0.8:80 -r 10.0.0.3:80 -m -w 1
`,
	`-D -t 10.96.0.1:443
-D -u [fd00:96::1]:53
-D -f 16384
-D -t 10.96.0.8:80
`,
}

// serversAsIpvsadm: what is sent to the kernel leaves what ipvsadm leaves with the same input; doing it again changes
// nothing; and an input that begins with what is there, or deletes what is not, goes on.
func serversAsIpvsadm(t *testing.T) {
	var native, tool [][]string
	// Without any address of its own a network has nowhere to send packets, and IPVS takes no real server.
	up := func() {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	inOwnNetwork(t, func() {
		up()
		for _, input := range serverInputs {
			for range 2 {
				if err := runRestore(input); err != nil && !strings.Contains(err.Error(), "-E ") && !strings.Contains(err.Error(), "-e ") {
					t.Errorf("%v", err)
				}
			}
			native = append(native, saved(t))
		}
		err := runRestore("-D -t 192.0.2.1:1\n-d -t 192.0.2.1:1 -r 192.0.2.2:1\n-E -t 192.0.2.1:1 -s rr\n")
		if err == nil || !strings.Contains(err.Error(), "line 3 (-E -t 192.0.2.1:1 -s rr): no such process") {
			t.Errorf("a virtual server that is not there: %v", err)
		}
	})
	inOwnNetwork(t, func() {
		up()
		for _, input := range serverInputs {
			c := exec.Command("ipvsadm", "-R")
			c.Stdin = strings.NewReader(input)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("ipvsadm -R: %v: %s", err, out)
			}
			tool = append(tool, saved(t))
		}
	})
	if diff := cmp.Diff(tool, native); diff != "" {
		t.Errorf("left by ipvsadm (-) and here (+):\n%s", diff)
	}
	if len(tool) != 3 || len(tool[0]) < 25 || len(tool[2]) < 5 {
		t.Errorf("%d, %v", len(tool), tool)
	}
}

// TestServersNotUnderstood: what is no line of a step is refused before anything is done.
func TestServersNotUnderstood(t *testing.T) {
	for _, line := range []string{"-C", "-Z", "-A -t 10.96.0.1:443", "-A -t 10.96.0.1:443 -s sh -b something", "-a -t 10.96.0.1:443 -r 10.0.0.1:6443",
		"-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -i -w 1 --tun-type vxlan", "--start-daemon master"} {
		if _, err := setServers(report.RepairCommand{Command: []string{"ipvsadm", "-R"}, Input: "\n" + line + "\n"}); err == nil || !strings.Contains(err.Error(), "line 2 ("+line) {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, err := setServers(report.RepairCommand{Command: []string{"ipvsadm", "-C"}}); err == nil {
		t.Error("ipvsadm -C is done")
	}
}
