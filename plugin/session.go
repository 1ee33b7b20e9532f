package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// maxBundle bounds what a node may send: a bundle of 50,000 Services has about 40 MB.
const maxBundle = 512 << 20

// exitMissing is the exit code of `collect` for a bundle that lacks a source: the bundle says which.
const exitMissing = 4

// Session is a pod that runs on a node and is asked.
type Session struct {
	cluster *Cluster
	options Options
	node    string
	pod     string
}

// Run reads one node once: it makes the pod, reads and deletes it, on every path. number counts the run's pods; podList
// is what the API has of the node's pods, for Options.Pods.
func (c *Cluster) Run(ctx context.Context, node *corev1.Node, number int, o Options, podList []byte) (s *snapshot.Snapshot, err error) {
	session, err := c.Open(ctx, node, number, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, session.Close(ctx)) }()
	return session.Collect(ctx, podList)
}

// Open makes a pod on a node and waits until it can be asked. On an error, and on a ctx that is cancelled, the pod is
// deleted before Open returns. Errors name the node, and are one line.
func (c *Cluster) Open(ctx context.Context, node *corev1.Node, number int, o Options) (*Session, error) {
	s := &Session{cluster: c, options: o, node: node.Name, pod: podName(o.Instance, number)}
	err := s.open(ctx, node)
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return s, nil
}

// failed says whose error it is.
func (s *Session) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return fmt.Errorf("read node %s: %w", s.node, err)
}

func (s *Session) open(ctx context.Context, node *corev1.Node) error {
	architecture := ""
	if s.options.Binary != "" {
		a, err := CheckBinary(s.options.Binary)
		if err != nil {
			return err
		}
		architecture = a
	}
	if err := checkNode(node, architecture); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	err := s.cluster.create(within, Pod(s.pod, s.node, s.options))
	if err != nil {
		err = refused(err, &s.options)
	} else if err = s.started(within); err == nil && s.options.Binary != "" {
		err = s.copyProgram(within)
	}
	if err != nil {
		// A request that broke off may have been carried out.
		return errors.Join(err, s.cluster.remove(ctx, s.options.Namespace, s.pod))
	}
	return nil
}

// started waits until the pod's container runs.
func (s *Session) started(ctx context.Context) error {
	last := "its kubelet has not looked at the pod"
	for {
		within, cancel := context.WithTimeout(ctx, requestTimeout)
		pod, err := s.cluster.core.Pods(s.options.Namespace).Get(within, s.pod, metav1.GetOptions{})
		cancel()
		switch {
		case apierrors.IsNotFound(err):
			return errors.New("somebody deleted the pod")
		case err != nil && !passes(err):
			return errors.New(oneLine(err.Error()))
		case err == nil:
			if pod.Status.Phase == corev1.PodRunning && len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Running != nil {
				return nil
			}
			if err := failure(pod); err != nil {
				return err
			}
			last = progress(pod)
		}
		if !pause(ctx, again) {
			return fmt.Errorf("its pod does not start within %v: %s (see `kubectl describe pod` while another try runs, or wait longer with --timeout)", s.options.Timeout, last)
		}
	}
}

// copyProgram streams the program into the pod.
func (s *Session) copyProgram(ctx context.Context) error {
	return s.retry(ctx, "copy the program", func() (string, error) {
		f, err := os.Open(s.options.Binary)
		if err != nil {
			return "", err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return "", err
		}
		// What was cut off is not run.
		target := s.options.program()
		script := fmt.Sprintf(`cat >%[1]s.part && [ "$(wc -c <%[1]s.part)" -eq %[2]d ] && chmod 0755 %[1]s.part && mv %[1]s.part %[1]s`, target, info.Size())
		return s.exec(ctx, []string{"/bin/sh", "-c", script}, f, io.Discard)
	})
}

// Collect reads the node. Objects are not in the snapshot: the client has them. podList is what the API has of the
// node's pods, needed when Options.Pods names any.
func (s *Session) Collect(ctx context.Context, podList []byte) (*snapshot.Snapshot, error) {
	within, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	var got *snapshot.Snapshot
	err := s.retry(within, "read it", func() (said string, err error) {
		got, said, err = s.collect(within, podList)
		return said, err
	})
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	got.Node = s.node
	// Objects only served to find the pods' namespaces.
	kept := got.Evidence[:0]
	for _, e := range got.Evidence {
		if e.Format != snapshot.Objects {
			kept = append(kept, e)
		}
	}
	got.Evidence = kept
	return got, nil
}

// collect runs one reading; its bundle is read while it comes.
func (s *Session) collect(ctx context.Context, podList []byte) (*snapshot.Snapshot, string, error) {
	var in io.Reader
	if len(s.options.Pods) > 0 {
		in = bytes.NewReader(podList)
	}
	r, w := io.Pipe()
	type ended struct {
		said string
		err  error
	}
	done := make(chan ended, 1)
	go func() {
		said, err := s.exec(ctx, s.options.command(s.node), in, w)
		w.CloseWithError(err)
		done <- ended{said, err}
	}()
	got, loadErr := snapshot.Load([]string{"-"}, io.LimitReader(r, maxBundle))
	// What comes after the bundle is not waited for: a pipe without a reader would hold it up.
	_, _ = io.Copy(io.Discard, io.LimitReader(r, maxBundle))
	r.CloseWithError(errors.New("it sends more than a bundle"))
	end := <-done
	var code exec.CodeExitError
	if errors.As(end.err, &code) && code.Code == exitMissing {
		end.err = nil
	}
	if end.err != nil {
		return nil, end.said, end.err
	}
	if loadErr == nil && got.Captured == "" {
		loadErr = errors.New("what the pod sends is no bundle")
	}
	return got, end.said, loadErr
}

// retry tries again what an API server broke off that was started anew; what the pod itself says stays.
func (s *Session) retry(ctx context.Context, what string, try func() (said string, err error)) error {
	for {
		said, err := try()
		if err == nil {
			return nil
		}
		var code exec.CodeExitError
		why := oneLine(err.Error())
		switch {
		case errors.As(err, &code):
			// What is killed does not say why; the pod may.
			if code.Code > 128 {
				if gone := s.gone(ctx); gone != nil {
					return fmt.Errorf("%s: %w", what, gone)
				}
			}
			if code.Code == 126 || code.Code == 127 {
				why += " (the image is not svcnet's own, or has no shell)"
			}
			if line := lastLine(said); line != "" {
				why = strings.TrimPrefix(line, "error: ")
			}
			return fmt.Errorf("%s: %s", what, why)
		case contains(why, "forbidden"):
			// An upgrade that is refused is text.
			return fmt.Errorf("%s: %s (ask for the right to create pods/exec in namespace %s)", what, why, s.options.Namespace)
		}
		if gone := s.gone(ctx); gone != nil {
			return fmt.Errorf("%s: %w", what, gone)
		}
		if !pause(ctx, time.Second) {
			return fmt.Errorf("%s: no answer within %v: %s (wait longer with --timeout)", what, s.options.Timeout, why)
		}
	}
}

// gone says why the pod cannot be asked any more; nil while it can, or while nobody knows.
func (s *Session) gone(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pod, err := s.cluster.core.Pods(s.options.Namespace).Get(within, s.pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return errors.New("somebody deleted the pod")
	}
	if err != nil {
		return nil
	}
	return failure(pod)
}

// Close deletes the pod, even when ctx is over.
func (s *Session) Close(ctx context.Context) error {
	if err := s.cluster.remove(ctx, s.options.Namespace, s.pod); err != nil {
		return fmt.Errorf("read node %s: %w", s.node, err)
	}
	return nil
}

// exec runs a command in the pod's container and returns the end of what it said on standard error. Newer API servers
// speak WebSocket; those before 1.30, and proxies on the way, only SPDY.
func (s *Session) exec(ctx context.Context, command []string, in io.Reader, out io.Writer) (string, error) {
	request := s.cluster.core.RESTClient().Post().Namespace(s.options.Namespace).Resource("pods").Name(s.pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: containerName, Command: command, Stdin: in != nil, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	config := rest.CopyConfig(s.cluster.config)
	config.Timeout = 0 // ctx ends it
	socket, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	spdy, err := remotecommand.NewSPDYExecutor(config, "POST", request.URL())
	if err != nil {
		return "", err
	}
	both, err := remotecommand.NewFallbackExecutor(socket, spdy, upgradeRefused)
	if err != nil {
		return "", err
	}
	var said tail
	err = both.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: &said})
	return said.String(), err
}

// upgradeRefused tells that somebody on the way does not speak WebSocket.
func upgradeRefused(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}

// tail keeps the last few KiB that are written to it.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	const most = 8 << 10
	n := len(p)
	t.Buffer.Write(p[max(0, n-most):])
	if over := t.Len() - most; over > 0 {
		t.Next(over)
	}
	return n, nil
}

func lastLine(s string) string {
	last := ""
	for line := range strings.Lines(s) {
		// Usage is pointed to after the error.
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "See '") {
			last = line
		}
	}
	return last
}
