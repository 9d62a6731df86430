package hostnet_test

import (
	"os"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/runtime/hostnet"
)

// TestBlockingFirewallIsNamedWithAFix: firewalls of the host that drop what containers send are named, with the commands that let it pass. Those
// commands, run as they are given, do.
func TestBlockingFirewallIsNamedWithAFix(t *testing.T) {
	needs.Programs(t, "iptables-nft", "iptables-legacy", "nft")
	docker := []string{"iptables-nft -N DOCKER-USER", "iptables-nft -A DOCKER-USER -j RETURN",
		"iptables-nft -A FORWARD -j DOCKER-USER", "iptables-nft -P FORWARD DROP"}
	for _, c := range []struct {
		name  string
		rules []string
		want  []string // in the sentence; none: nothing is blocked
		tools string   // by which flavour the commands are run
	}{
		{"nothing", nil, nil, ""},
		{"docker without IPv6", docker, []string{"container to container by IPv4", "outside", "published port",
			"chain ip filter FORWARD of nftables (policy drop)", "iptables -I DOCKER-USER -i sk+ -j ACCEPT"}, "nft"},
		{"ufw", []string{"iptables-nft -P FORWARD DROP", "ip6tables-nft -P FORWARD DROP"},
			[]string{"IPv4", "IPv6", "chain ip6 filter FORWARD", "ip6tables -I FORWARD -o sk+ -j ACCEPT"}, "nft"},
		{"legacy", []string{"iptables-legacy -P FORWARD DROP"},
			[]string{"chain FORWARD of iptables-legacy", "iptables-legacy -I FORWARD -i sk+ -j ACCEPT"}, "legacy"},
		{"a reject at the end", []string{"iptables-nft -A FORWARD -j REJECT"},
			[]string{"chain ip filter FORWARD of nftables;"}, "nft"},
		{"nft alone", []string{"nft add table inet filter",
			"nft add chain inet filter forward { type filter hook forward priority 0 ; policy drop ; }"},
			[]string{"IPv6", "chain inet filter forward", "nft insert rule inet filter forward oifname"}, "nft"},
		{"only one way", []string{"iptables-nft -P FORWARD DROP", "iptables-nft -A FORWARD -i sk+ -j ACCEPT",
			"iptables-nft -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT"},
			[]string{"(from outside to a published port)"}, "nft"},
		{"all pass", []string{"iptables-nft -P FORWARD DROP", "iptables-nft -A FORWARD -j ACCEPT"}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := apart(t)
			forwardingEntry(t)
			for _, r := range c.rules {
				h.run(strings.Fields(r)...)
			}
			err := hostnet.Blocked()
			if len(c.want) == 0 {
				must(t, err)
				return
			}
			for _, want := range c.want {
				if !fault.Is(err, fault.Precondition) || !strings.Contains(err.Error(), want) {
					t.Fatalf("%v, want %q", err, want)
				}
			}
			_, commands, _ := strings.Cut(err.Error(), "let them pass (")
			for line := range strings.SplitSeq(strings.TrimSuffix(commands, ")"), "; ") {
				line = strings.NewReplacer("ip6tables -", "ip6tables-"+c.tools+" -", "iptables -",
					"iptables-"+c.tools+" -").Replace(line)
				h.run("sh", "-c", line)
			}
			must(t, hostnet.Blocked())
			if links := h.run("ip", "-o", "link"); strings.Count(links, "\n") > 0 {
				t.Errorf("there is left: %s", links)
			}
			if rules := h.run("nft", "list", "ruleset"); strings.Contains(rules, "table inet souk-") {
				t.Errorf("there is left: %s", rules)
			}
		})
	}
}

// forwardingEntry has the test's host pass packets on, as one with Docker does.
func forwardingEntry(t *testing.T) {
	t.Helper()
	for _, file := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		must(t, os.WriteFile("/proc/sys/net/"+file, []byte("1"), 0))
	}
}

// TestOpeningRulesAreAddedOnceAndRemoved: souk's own rules in a chain of the host's let packets of containers pass, are laid once, are shown by
// iptables, and go when they are not wanted.
func TestOpeningRulesAreAddedOnceAndRemoved(t *testing.T) {
	needs.Programs(t, "iptables-nft", "nft")
	h := apart(t)
	h.run("iptables-nft", "-P", "FORWARD", "DROP")
	h.run("nft", "add table inet mine")
	h.run("nft", "add chain inet mine fw { type filter hook forward priority 0 ; policy drop ; }")
	if err := hostnet.Blocked(); err == nil || !strings.Contains(err.Error(), "FORWARD") { // it passes nothing on yet
		t.Errorf("before anything is passed on: %v", err)
	}
	for _, chain := range []string{"FORWARD", "inet/mine/fw"} {
		o, err := hostnet.NewOpening(chain, "/var/lib/souk")
		must(t, err)
		for i, want := range []bool{true, false} {
			if laid, err := o.Lay(); laid != want || err != nil {
				t.Errorf("%s, time %d: laid %v, %v", chain, i, laid, err)
			}
		}
	}
	must(t, hostnet.Blocked())
	forwardingEntry(t)
	must(t, hostnet.Blocked())
	shown := h.run("iptables-nft", "-S", "FORWARD")
	for _, way := range []string{"i", "o"} {
		want := "-A FORWARD -" + way + " sk+ -m comment --comment souk-forward-"
		if strings.Count(shown, want) != 1 || !strings.Contains(shown, "-j ACCEPT") {
			t.Errorf("iptables shows %s, want %s once", shown, want)
		}
	}
	h.run("iptables-nft", "-F", "FORWARD")
	o, err := hostnet.NewOpening("FORWARD", "/var/lib/souk")
	must(t, err)
	if laid, err := o.Lay(); !laid || err != nil {
		t.Errorf("after a flush: %v, %v", laid, err)
	}
	must(t, hostnet.RemoveOpening("/var/lib/other"))
	must(t, hostnet.Blocked())
	must(t, hostnet.RemoveOpening("/var/lib/souk"))
	if rules := h.run("nft", "list", "ruleset"); strings.Contains(rules, "souk-forward") {
		t.Errorf("there is left: %s", rules)
	}
	if err := hostnet.Blocked(); !fault.Is(err, fault.Precondition) {
		t.Errorf("closed again: %v", err)
	}
	for chain, want := range map[string]fault.Kind{"NONE": fault.Precondition, "": fault.Invalid,
		"ip/filter": fault.Invalid, "arp/filter/forward": fault.Invalid} {
		o, err := hostnet.NewOpening(chain, "x")
		if err == nil {
			_, err = o.Lay()
		}
		if !fault.Is(err, want) {
			t.Errorf("%q: %v, want %v", chain, err, want)
		}
	}
}
