package sim

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// twin is another name whose fences are counted by the same counter.
func twin(name string) string {
	for i := 0; ; i++ {
		if other := "t" + strconv.Itoa(i); stripe(other) == stripe(name) {
			return other
		}
	}
}

// stripe is the counter of a name, as all clients must agree on it.
func stripe(name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32() % 1024
}

// isSteady says whether a marker gives a vote to the process with this run id.
func isSteady(marker, run string) bool {
	return strings.Contains(marker, " run="+run+" ") && strings.HasSuffix(marker, " steady")
}
