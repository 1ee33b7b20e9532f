package apply

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcnet/svcnet/explain/report"
)

// serviceDevice is the device that kube-proxy makes for the addresses of Services in IPVS mode.
const serviceDevice = "kube-ipvs0"

// An addressCommand is a line of `ip -batch -` about an address of a device, or about a device of type dummy.
type addressCommand struct {
	line   int
	text   string
	add    bool
	device string
	// prefix is the address; not valid where the line is about the device itself.
	prefix netip.Prefix
}

// setAddresses does as `ip -batch -` with the input of a step, which has lines "addr add 10.96.0.1/32 dev kube-ipvs0",
// "addr del …", "link add kube-ipvs0 type dummy" and "link del kube-ipvs0". Each leaves what it says: what is there
// already, or gone already, is no error.
func setAddresses(c report.RepairCommand) (func() error, error) {
	var all []addressCommand
	n := 0
	for line := range strings.Lines(c.Input) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		a := addressCommand{line: n, text: line}
		if err := a.parse(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("change addresses: line %d (%s): %w", n, line, err)
		}
		all = append(all, a)
	}
	return func() error {
		for i := range all {
			if err := all[i].run(); err != nil {
				return fmt.Errorf("change addresses: line %d (%s): %w", all[i].line, all[i].text, err)
			}
		}
		return nil
	}, nil
}

func (a *addressCommand) parse(words []string) error {
	if len(words) < 3 || words[1] != "add" && words[1] != "del" {
		return errors.New("it is not understood")
	}
	if words[len(words)-1] != serviceDevice && words[2] != serviceDevice {
		return fmt.Errorf("no step changes another device than %s", serviceDevice)
	}
	a.add = words[1] == "add"
	switch {
	case words[0] == "addr" && len(words) == 5 && words[3] == "dev":
		a.device = words[4]
		var err error
		if a.prefix, err = netip.ParsePrefix(words[2]); err != nil {
			return fmt.Errorf("%s is no address with the length of its network", words[2])
		}
		return nil
	case words[0] == "link" && a.add && len(words) == 5 && words[3] == "type" && words[4] == "dummy",
		words[0] == "link" && !a.add && len(words) == 3:
		a.device = words[2]
		return nil
	}
	return errors.New("it is not understood")
}

func (a *addressCommand) run() error {
	link, err := netlink.LinkByName(a.device)
	var missing netlink.LinkNotFoundError
	gone := errors.As(err, &missing)
	switch {
	case err != nil && !gone:
		return err
	case !a.prefix.IsValid():
		return a.runDevice(link, gone)
	case gone && a.add:
		return err
	case gone:
		return nil
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.prefix.Addr().AsSlice(), Mask: net.CIDRMask(a.prefix.Bits(), a.prefix.Addr().BitLen())}}
	if a.add {
		err = netlink.AddrAdd(link, addr)
		if errors.Is(err, unix.EEXIST) {
			return nil
		}
		return err
	}
	if err = netlink.AddrDel(link, addr); errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

// runDevice makes or deletes a device. Another one than a dummy is nobody's to delete here.
func (a *addressCommand) runDevice(link netlink.Link, gone bool) error {
	if gone {
		if !a.add {
			return nil
		}
		return netlink.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: a.device}})
	}
	if link.Type() != "dummy" {
		return fmt.Errorf("%s is of type %s, and no dummy", a.device, link.Type())
	}
	if a.add {
		return nil
	}
	return netlink.LinkDel(link)
}
