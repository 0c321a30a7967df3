package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

const (
	imageEnv      = "REDLOCK_TEST_IMAGE"
	officialImage = "redis:7.4-alpine"
	localImage    = "redlock-test-redis:local" // built by integration/image.sh

	pullTimeout = 10 * time.Minute

	testLabel = "redlock.test" // on every container: the name of the test that it is for
)

// redisPort is where redis-server listens inside its container.
var redisPort = network.MustParsePort("6379/tcp")

// engine is the Docker engine, for what testcontainers has no words for.
type engine struct {
	provider *testcontainers.DockerProvider
	client   client.APIClient
}

// containerNode is a redis-server in a container of its own, published on a port of the host that we chose: one that the
// engine chose would be another after every start.
type containerNode struct {
	// Set by startContainers, then read-only.
	engine engine
	cfg    config
	image  string
	host   string
	port   int

	// Changed by create, disconnect and reconnect, which are never called at the same time.
	running  testcontainers.Container
	networks []string // that it was taken from
}

func imageName() string {
	if image := os.Getenv(imageEnv); image != "" {
		return image
	}
	return officialImage
}

// containersMissing says what to do if no engine answers.
func containersMissing() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	e, err := newEngine(ctx)
	if err != nil {
		return err
	}
	return e.provider.Close()
}

// imageIsLocal says whether containers can be had without downloading anything.
func imageIsLocal() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	e, err := newEngine(ctx)
	if err != nil {
		return false
	}
	defer e.provider.Close()
	_, err = e.client.ImageInspect(ctx, imageName())
	return err == nil
}

// silence keeps what testcontainers has to say about each step out of the tests' output.
var silence = sync.OnceFunc(func() { log.SetDefault(log.NewNoopLogger()) })

func newEngine(ctx context.Context) (engine, error) {
	silence()
	generic, err := testcontainers.ProviderDefault.GetProvider()
	if err == nil {
		provider := generic.(*testcontainers.DockerProvider)
		e := engine{provider: provider, client: provider.Client()}
		if _, err = e.client.Ping(ctx, client.PingOptions{}); err == nil {
			return e, nil
		}
		_ = provider.Close()
	}
	return engine{}, fmt.Errorf("containers need a Docker engine (%w): install and start one, or set DOCKER_HOST", err)
}

// pull fetches the image unless it is there.
func (e engine) pull(ctx context.Context, image string) error {
	_, err := e.client.ImageInspect(ctx, image)
	if errdefs.IsNotFound(err) {
		err = e.provider.PullImage(ctx, image)
	}
	if err != nil {
		return fmt.Errorf("image %s is not to be had (%w): where nothing can be pulled, run integration/image.sh and "+
			"set %s=%s", image, err, imageEnv, localImage)
	}
	return nil
}

func startContainers(t testing.TB, n int, cfg config) ([]node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pullTimeout)
	defer cancel()
	e, err := newEngine(ctx)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = e.provider.Close() })
	image := imageName()
	if err := e.pull(ctx, image); err != nil {
		return nil, err
	}
	host, err := e.provider.DaemonHost(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel = context.WithTimeout(context.Background(), faultTimeout)
	defer cancel()
	nodes := make([]node, n)
	err = each(n, func(i int) error {
		c := &containerNode{engine: e, cfg: cfg, image: image, host: host}
		if err := untilPortFree(ctx, c.tryPort); err != nil {
			return err
		}
		nodes[i] = c
		return nil
	})
	return nodes, err
}

// tryPort creates the container on some free port.
func (c *containerNode) tryPort(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	c.port = port
	if err := c.create(ctx); err != nil {
		releasePort(port)
		return err
	}
	return nil
}

// create runs a new container at our address. If it cannot, it leaves none.
func (c *containerNode) create(ctx context.Context) error {
	cmd := append([]string{"redis-server"}, c.cfg.serverArgs("--protected-mode", "no")...)
	ctr, err := testcontainers.Run(ctx, c.image,
		testcontainers.WithCmd(cmd...),
		testcontainers.WithLabels(map[string]string{testLabel: c.cfg.name}),
		testcontainers.WithExposedPorts(redisPort.String()),
		testcontainers.WithHostConfigModifier(func(hc *container.HostConfig) {
			hc.PortBindings = network.PortMap{
				redisPort: {{HostIP: c.publishOn(), HostPort: strconv.Itoa(c.port)}},
			}
		}),
	)
	if err == nil {
		c.running = ctr
		return nil
	}
	if ctr != nil {
		err = errors.Join(err, testcontainers.TerminateContainer(ctr, testcontainers.StopTimeout(0)))
	}
	if strings.Contains(err.Error(), "reaper") {
		err = fmt.Errorf("%w (where the helper image of testcontainers cannot be pulled, set "+
			"TESTCONTAINERS_RYUK_DISABLED=true)", err)
	}
	return asPortTaken(err)
}

// asPortTaken makes errors.Is(err, errPortTaken) true for the engine's ways to say that.
func asPortTaken(err error) error {
	for _, sign := range []string{"port is already allocated", "address already in use"} {
		if err != nil && strings.Contains(err.Error(), sign) {
			return fmt.Errorf("%w: %w", errPortTaken, err)
		}
	}
	return err
}

// publishOn is this host alone where the engine is on it, else all its addresses.
func (c *containerNode) publishOn() netip.Addr {
	if c.host == "localhost" || c.host == "127.0.0.1" {
		return netip.MustParseAddr("127.0.0.1")
	}
	return netip.IPv4Unspecified()
}

func (c *containerNode) addr() string { return net.JoinHostPort(c.host, strconv.Itoa(c.port)) }

func (c *containerNode) socket() string { return "" }

// up starts the container again; it still has its data. To be without, it is made anew.
func (c *containerNode) up(ctx context.Context, keepData bool) error {
	if keepData || c.cfg.persist == inMemory {
		return untilPortFree(ctx, func(ctx context.Context) error {
			_, err := c.engine.client.ContainerStart(ctx, c.id(), client.ContainerStartOptions{})
			return asPortTaken(err)
		})
	}
	if err := c.remove(ctx); err != nil {
		return err
	}
	if err := untilPortFree(ctx, c.create); err != nil {
		return err
	}
	if len(c.networks) > 0 {
		c.networks = nil
		return c.disconnect(ctx)
	}
	return nil
}

func (c *containerNode) id() string { return c.running.GetContainerID() }

// kill also ends a paused container: the engine sends the signal first and resumes it then.
func (c *containerNode) kill(ctx context.Context) error {
	_, err := c.engine.client.ContainerKill(ctx, c.id(), client.ContainerKillOptions{Signal: "SIGKILL"})
	return err
}

func (c *containerNode) freeze(ctx context.Context) error {
	_, err := c.engine.client.ContainerPause(ctx, c.id(), client.ContainerPauseOptions{})
	return err
}

func (c *containerNode) thaw(ctx context.Context) error {
	_, err := c.engine.client.ContainerUnpause(ctx, c.id(), client.ContainerUnpauseOptions{})
	return err
}

func (c *containerNode) disconnect(ctx context.Context) error {
	networks, err := c.running.Networks(ctx)
	if err != nil {
		return err
	}
	for _, name := range networks {
		opts := client.NetworkDisconnectOptions{Container: c.id(), Force: true}
		if _, err := c.engine.client.NetworkDisconnect(ctx, name, opts); err != nil {
			return err
		}
		c.networks = append(c.networks, name)
	}
	return nil
}

func (c *containerNode) reconnect(ctx context.Context) error {
	for len(c.networks) > 0 {
		opts := client.NetworkConnectOptions{Container: c.id()}
		if _, err := c.engine.client.NetworkConnect(ctx, c.networks[0], opts); err != nil {
			return err
		}
		c.networks = c.networks[1:]
	}
	return nil
}

func (c *containerNode) close(ctx context.Context) error {
	defer releasePort(c.port)
	return c.remove(ctx)
}

// remove ends the container and takes its data with it.
func (c *containerNode) remove(ctx context.Context) error {
	if c.running == nil {
		return nil
	}
	_ = c.kill(ctx) // a paused one cannot be stopped; one that is dead needs no killing
	if err := testcontainers.TerminateContainer(c.running, testcontainers.StopTimeout(0), testcontainers.StopContext(ctx)); err != nil {
		return err
	}
	c.running = nil
	return nil
}
