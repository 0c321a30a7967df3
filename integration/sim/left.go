package sim

import (
	"strings"
	"time"
)

// troubled notes for how long from now on a fault is felt.
func (k *checker) troubled(n *node, d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n.trouble = max(n.trouble, k.w.now()+d)
}

// suspect is a key on a node for a token that nobody holds.
type suspect struct {
	node  *node
	token string
}

// suspects checks that no such key stays longer than a node timeout and three seconds on a node that its client reaches.
// k.mu must be held.
func (k *checker) suspects() {
	now := k.w.now()
	wanted := map[string]bool{}
	for h := range k.held {
		wanted[h.Token()] = true
	}
	there := map[suspect]time.Duration{}
	for _, n := range k.w.nodes {
		for key, token := range n.tokens() {
			if wanted[token] || k.excused(n, token) {
				continue
			}
			s := suspect{n, token}
			since, ok := k.seen[s]
			if !ok {
				since = now
			}
			since = max(since, n.trouble, k.w.clientOf(token).trouble)
			if there[s] = since; now-since > k.w.plan.NodeTimeout+3*time.Second {
				k.violate(ruleLeft, "%s on %s: %s, since %v", key, n.name, token, since)
			}
		}
	}
	k.seen = there
}

// excused says whether a key may stay until it runs out: its process is dead, the network has sent its request again, or
// the server's clock was set back, so that it takes late ones.
func (k *checker) excused(n *node, token string) bool {
	return k.copies[token] || n.wasSetBack() || k.w.clientOf(token).gone()
}

// clientOf is whose token it is, by its label.
func (w *world) clientOf(token string) *client {
	for _, c := range w.clients {
		if strings.HasSuffix(token, " "+c.name) {
			return c
		}
	}
	panic("a token of nobody: " + token)
}

// leftovers checks that the nodes hold nothing that nobody wants, a node timeout and three seconds after the last call.
func (k *checker) leftovers() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.w.nodes {
		for key, token := range n.tokens() {
			if !k.excused(n, token) {
				k.violate(ruleLeft, "%s on %s: %s, at the end", key, n.name, token)
			}
		}
	}
}

// tokens are the keys that are there, and whose they are.
func (n *node) tokens() map[string]string {
	all := map[string]string{}
	n.Do(func() {
		for key := range n.Keys {
			if v, ok := n.Get(key); ok {
				all[key] = v.S
			}
		}
	})
	return all
}
