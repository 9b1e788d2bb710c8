package agent

import "testing"

func TestHosts_file_names_the_sandbox_and_keeps_what_else_it_says(t *testing.T) {
	const local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	for _, one := range []struct{ text, name, previous, want string }{
		{"", "sb", "", local + "127.0.1.1\tsb\n"},
		{local + "127.0.1.1\twarm\n", "sb", "warm", local + "127.0.1.1\tsb\n"},
		{"127.0.0.1 localhost me\n10.0.0.7 db # mine", "sb", "", "127.0.0.1 localhost me\n10.0.0.7 db # mine\n127.0.1.1\tsb\n"},
		{local + "127.0.1.1\tsb\n", "sb", "sb", local + "127.0.1.1\tsb\n"},
		{"127.0.1.1\tother\n" + local, "sb", "warm", "127.0.1.1\tother\n" + local + "127.0.1.1\tsb\n"},
	} {
		if got := withOwnName(one.text, one.name, one.previous); got != one.want {
			t.Errorf("%q for %s after %s: %q (expected: %q)", one.text, one.name, one.previous, got, one.want)
		}
	}
}
