// Package egress lets builds reach out: an HTTP proxy (CONNECT, and requests with an absolute address) that resolves names itself, checks
// every address against a policy, and dials the very address that it has checked.
package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Policy says which addresses may be reached: public ones, and those that are named.
type Policy struct {
	addresses []netip.Prefix
	// named are hosts by their ports; port 0 is any.
	named map[hostPort]bool
	// own are the host's addresses at the moment.
	own func() ([]netip.Addr, error)
}

type hostPort struct {
	host string
	port uint16
}

// maxAllow bounds what a caller may name.
const maxAllow = 256

// NewPolicy takes what is allowed beside public addresses: "10.1.2.3", "10.1.0.0/16", "[::1]:80", "mirror.internal:443".
func NewPolicy(allow []string) (*Policy, error) {
	if len(allow) > maxAllow {
		return nil, fmt.Errorf("%d entries (expected: at most %d)", len(allow), maxAllow)
	}
	p := &Policy{named: map[hostPort]bool{}, own: ownAddresses}
	for _, entry := range allow {
		if err := p.allow(strings.TrimSpace(entry)); err != nil {
			return nil, fmt.Errorf("%q: %w (expected: an address, a range of addresses such as 10.1.0.0/16, or host:port)", clip(entry), err)
		}
	}
	return p, nil
}

func (p *Policy) allow(entry string) error {
	if prefix, err := netip.ParsePrefix(entry); err == nil {
		if prefix.Addr().Is4In6() {
			return errors.New("write it as an IPv4 range")
		}
		p.addresses = append(p.addresses, prefix.Masked())
		return nil
	}
	if address, err := netip.ParseAddr(entry); err == nil {
		address = address.Unmap().WithZone("")
		p.addresses = append(p.addresses, netip.PrefixFrom(address, address.BitLen()))
		return nil
	}
	host, port, err := net.SplitHostPort(entry)
	if err != nil {
		return errors.New("neither")
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return fmt.Errorf("port %q", port)
	}
	host, err = canonicalHost(host)
	if err != nil {
		return err
	}
	p.named[hostPort{host, uint16(number)}] = true
	return nil
}

// canonicalHost is how a host is compared: lower case, no final dot, an address in its one form.
func canonicalHost(host string) (string, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().WithZone("").String(), nil
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "" || len(host) > 253 {
		return "", fmt.Errorf("host %q", clip(host))
	}
	for _, r := range host {
		if r != '-' && r != '.' && r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return "", fmt.Errorf("host %q (expected: letters, digits, '-' and '.')", clip(host))
		}
	}
	return host, nil
}

// What is not public: by RFC 6890 and its successors, and what stands for other addresses.
var closed = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	// Of IPv6 only 2000::/3 is given out; these lie in it.
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

var global6 = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// refusal is why an address may not be reached.
type refusal struct {
	host string
	why  string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s is not reachable from a build: %s. To allow it, add it to the setting build.allow", clip(r.host), r.why)
}

// check says whether an address may be dialled for a host and port, and with why if not.
func (p *Policy) check(host string, port uint16, address netip.Addr) error {
	// A zone would name one of this machine's interfaces.
	if address.Zone() != "" {
		return &refusal{host, "address " + address.String() + " is of a link"}
	}
	address = address.Unmap()
	if name, err := canonicalHost(host); err == nil && p.named[hostPort{name, port}] {
		return nil
	}
	if p.named[hostPort{address.String(), port}] {
		return nil
	}
	for _, prefix := range p.addresses {
		if prefix.Contains(address) {
			return nil
		}
	}
	if !public(address) {
		return &refusal{host, "address " + address.String() + " is not a public one"}
	}
	own, err := p.own()
	if err != nil {
		return fmt.Errorf("the host's own addresses: %w", err)
	}
	if slices.Contains(own, address) {
		return &refusal{host, "address " + address.String() + " is the host's own"}
	}
	return nil
}

// Requires: address is unmapped.
func public(address netip.Addr) bool {
	if !address.IsValid() || !address.IsGlobalUnicast() {
		return false
	}
	if address.Is6() && !global6.Contains(address) {
		// NAT64 (64:ff9b::/96 and 64:ff9b:1::/48), unique local, link-local, IPv4-compatible and what else lies outside.
		return false
	}
	for _, prefix := range closed {
		if prefix.Contains(address) {
			return false
		}
	}
	return true
}

func ownAddresses() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, one := range found {
		if prefix, err := netip.ParsePrefix(one.String()); err == nil {
			own = append(own, prefix.Addr().Unmap().WithZone(""))
		}
	}
	return own, nil
}

// clip bounds a text that came from a sandbox.
func clip(text string) string {
	const most = 200
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
