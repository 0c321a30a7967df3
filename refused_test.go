package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAQuestionThatIsRefusedIsNotAskedWithoutEnd(t *testing.T) {
	for _, refused := range []string{"hgetall", "hmget"} {
		t.Run(refused, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ps := newPeers(t, 5)
				p := guarded(t, ps)
				require.NotContains(t, grants(t, p, "a"), false)
				for _, peer := range ps[1:] {
					peer.do(func() {
						peer.errs[refused] = "NOPERM this user has no permissions to run the '" + refused + "' command"
					})
				}
				ps[0].reboot(false)
				_ = grants(t, p, "b")
				time.Sleep(guardOver + time.Minute)
				require.LessOrEqual(t, ps[1].count(refused), 70, "once a second")
				require.NotContains(t, grants(t, p, "c")[1:], false, "and whatever else is asked is answered")
			})
		})
	}
}
