package plugin

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// checkNode says why no pod can read a node, before one is tried. architecture is that of the program that is copied
// there; empty: the image's business.
func checkNode(n *corev1.Node, architecture string) error {
	if os := n.Status.NodeInfo.OperatingSystem; os != "" && os != "linux" {
		return fmt.Errorf("its operating system is %s, and pods read Linux nodes only (give its HNS output with -f)", os)
	}
	if a := n.Status.NodeInfo.Architecture; architecture != "" && a != "" && a != architecture {
		return fmt.Errorf("it is %s, and the program that would be copied there is for %s (name one for %s with --copy-binary=FILE, or an image with --image)", a, architecture, a)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			why := ""
			if c.Message != "" {
				why = ": " + oneLine(c.Message)
			}
			return fmt.Errorf("it is not ready%s; its kubelet starts no pod (run svcnet collect on it, and give the bundle with -f)", why)
		}
	}
	return nil
}

// failure is why a pod will not run, from what its status says; nil while it may.
func failure(pod *corev1.Pod) error {
	s := &pod.Status
	for _, c := range s.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			said := oneLine(w.Message)
			switch w.Reason {
			case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "SignatureValidationFailed":
				return fmt.Errorf("pull the image %s: %s: %s (name one that the node can pull with --image, credentials with --image-pull-secret, or copy the program into one that is there with --copy-binary --image=IMAGE)",
					c.Image, w.Reason, said)
			case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
				return fmt.Errorf("start the container of image %s: %s: %s", c.Image, w.Reason, said)
			}
		}
		// What is deleted ends, and that is no reason.
		if t := c.State.Terminated; t != nil && s.Phase != corev1.PodFailed && pod.DeletionTimestamp == nil {
			return fmt.Errorf("its container ended at once: %s", ended(t))
		}
	}
	switch {
	case s.Phase == corev1.PodFailed && s.Reason != "":
		return fmt.Errorf("the node refuses the pod: %s: %s", s.Reason, oneLine(s.Message))
	case pod.DeletionTimestamp != nil:
		return errors.New("somebody deletes the pod")
	case s.Phase == corev1.PodFailed, s.Phase == corev1.PodSucceeded:
		for _, c := range s.ContainerStatuses {
			if t := c.State.Terminated; t != nil {
				return fmt.Errorf("its container ended at once: %s", ended(t))
			}
		}
		return errors.New("the pod ended at once")
	}
	return nil
}

// ended says how a container ended. Reasons of the runtime are recognised where they mean that the image is of
// another kind.
func ended(t *corev1.ContainerStateTerminated) string {
	said := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		said = t.Reason + ", " + said
	}
	if t.Message != "" {
		said += ": " + oneLine(t.Message)
	}
	switch {
	case contains(t.Message, "exec format error"):
		said += " (the image is for another architecture than the node: name another with --image)"
	case contains(t.Message, "no such file or directory", "executable file not found"):
		said += " (the image is not svcnet's own, which has it as " + imageProgram + ", or with --copy-binary no /bin/sh: name another with --image)"
	}
	return said
}

// progress is what a pod that does not run yet waits for, for the message when time is over.
func progress(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			return w.Reason
		}
	}
	if len(pod.Status.Conditions) == 0 && len(pod.Status.ContainerStatuses) == 0 {
		return "its kubelet has not looked at the pod"
	}
	return string(pod.Status.Phase)
}
