package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func policy(t *testing.T, allow ...string) *Policy {
	t.Helper()
	p, err := NewPolicy(allow)
	if err != nil {
		t.Fatal(err)
	}
	p.own = func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("8.8.4.4"), netip.MustParseAddr("2600::1")}, nil
	}
	return p
}

func TestAddressesAreReachableWhereTheyArePublicOrNamed(t *testing.T) {
	for _, c := range []struct {
		address string
		allow   string
		open    bool
	}{
		{"8.8.8.8", "", true},
		{"1.1.1.1", "", true},
		{"2606:4700::1111", "", true},
		{"8.8.4.4", "", false}, // the host's own
		{"::ffff:8.8.4.4", "", false},
		{"2600::1", "", false},
		{"8.8.4.4", "8.8.4.4", true},
		{"::ffff:8.8.8.8", "", true},
		{"0.0.0.0", "", false},
		{"0.1.2.3", "", false},
		{"10.0.0.1", "", false},
		{"::ffff:10.0.0.1", "", false},
		{"100.64.0.1", "", false},
		{"127.0.0.1", "", false},
		{"127.8.8.8", "", false},
		{"::ffff:127.0.0.1", "", false},
		{"169.254.169.254", "", false},
		{"::ffff:169.254.169.254", "", false},
		{"172.16.0.1", "", false},
		{"172.31.255.255", "", false},
		{"172.32.0.1", "", true},
		{"192.0.0.8", "", false},
		{"192.0.2.1", "", false},
		{"192.88.99.1", "", false},
		{"192.168.1.1", "", false},
		{"198.18.0.1", "", false},
		{"198.51.100.1", "", false},
		{"203.0.113.1", "", false},
		{"224.0.0.1", "", false},
		{"239.255.255.250", "", false},
		{"240.0.0.1", "", false},
		{"255.255.255.255", "", false},
		{"::", "", false},
		{"::1", "", false},
		{"::7f00:1", "", false},         // IPv4-compatible
		{"64:ff9b::7f00:1", "", false},  // NAT64 of 127.0.0.1
		{"64:ff9b::808:808", "", false}, // NAT64 of a public one: it leads through a translator of the network
		{"64:ff9b:1::a00:1", "", false}, // local NAT64
		{"2002:7f00:1::", "", false},    // 6to4 of 127.0.0.1
		{"2001:0:1::", "", false},       // Teredo
		{"2001:db8::1", "", false},
		{"3fff::1", "", false},
		{"fc00::1", "", false},
		{"fd00:ec2::254", "", false},
		{"fe80::1", "", false},
		{"fe80::1%eth0", "", false},
		{"fec0::1", "", false},
		{"ff02::1", "", false},
		{"10.1.2.3", "10.1.2.3", true},
		{"10.1.2.4", "10.1.2.3", false},
		{"::ffff:10.1.2.3", "10.1.2.3", true},
		{"10.1.2.3", "::ffff:10.1.2.3", true},
		{"10.1.200.3", "10.1.0.0/16", true},
		{"10.2.0.1", "10.1.7.7/16", false},
		{"10.2.0.1", "mirror.internal:443", true},
		{"10.2.0.1", "MIRROR.internal.:443", true},
		{"10.2.0.1", "mirror.internal:80", false},
		{"10.2.0.1", "other.internal:443", false},
		{"10.2.0.1", "10.2.0.1:443", true},
		{"10.2.0.1", "10.2.0.1:80", false},
		{"127.0.0.1", "127.0.0.0/8", true},
		{"::1", "::1", true},
		{"fd00::5", "fd00::/8", true},
		{"fe80::1%eth0", "fe80::/10", false},
	} {
		var allow []string
		if c.allow != "" {
			allow = []string{c.allow}
		}
		err := policy(t, allow...).check("mirror.internal", 443, netip.MustParseAddr(c.address))
		if (err == nil) != c.open {
			t.Errorf("%s with %q allowed: %v (expected reachable: %v)", c.address, c.allow, err, c.open)
		}
		if err != nil && !strings.Contains(err.Error(), "build.allow") {
			t.Errorf("%s: %v (expected: the setting is named)", c.address, err)
		}
	}
}

func TestAllowListIsChecked(t *testing.T) {
	for _, entry := range []string{"", "*", "mirror.internal", "mirror.internal:", "mirror.internal:0", "mirror.internal:65536", "a b:1", "10.0.0.0/33", "10.0.0", "http://x:80", "::ffff:10.0.0.0/104"} {
		if _, err := NewPolicy([]string{entry}); err == nil {
			t.Errorf("%q is taken", entry)
		}
	}
	if _, err := NewPolicy(make([]string, maxAllow+1)); err == nil {
		t.Error("a list without bounds is taken")
	}
}
