package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
)

// An Image is what containers are made of, of one layer. Nodes have no registry: images are imported.
type Image struct {
	// Name with its tag, "docker.io/library/web:1".
	Name string
	// Files of the machine by their path in the image. Links are names in the image by what they lead to.
	Files, Links map[string]string
	// Entrypoint is what runs when nothing else is said.
	Entrypoint []string
}

// Busybox is an image with a shell: the machine's busybox-static.
func Busybox(name string, entrypoint ...string) Image {
	i := Image{Name: name, Files: map[string]string{"bin/busybox": "/bin/busybox"}, Links: map[string]string{}, Entrypoint: entrypoint}
	for _, applet := range []string{"cat", "chmod", "echo", "httpd", "ls", "mkdir", "mv", "sh", "sleep", "wc"} {
		i.Links["bin/"+applet] = "busybox"
	}
	return i
}

// write makes the tar archive that `docker save` makes.
func (i Image) write(file string) error {
	layer, err := os.CreateTemp(filepath.Dir(file), "layer-*")
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	defer func() { _ = os.Remove(layer.Name()) }()
	defer layer.Close()
	sum := sha256.New()
	if err := i.writeLayer(tar.NewWriter(io.MultiWriter(layer, sum))); err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.Entrypoint, "Env": []string{"PATH=" + systemPath}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sum.Sum(nil))}},
	})
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	contents, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{i.Name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	defer out.Close()
	size, err := layer.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = layer.Seek(0, io.SeekStart)
	}
	t := tar.NewWriter(out)
	for _, f := range []struct {
		name string
		size int64
		data io.Reader
	}{
		{"config.json", int64(len(config)), bytes.NewReader(config)},
		{"layer.tar", size, layer},
		{"manifest.json", int64(len(contents)), bytes.NewReader(contents)},
	} {
		if err == nil {
			err = t.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: f.size, Typeflag: tar.TypeReg})
		}
		if err == nil {
			_, err = io.Copy(t, f.data)
		}
	}
	if err == nil {
		err = t.Close()
	}
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	return out.Close()
}

func (i Image) writeLayer(t *tar.Writer) error {
	made := map[string]bool{}
	var folder func(dir string) error
	folder = func(dir string) error {
		if dir == "." || made[dir] {
			return nil
		}
		if err := folder(path.Dir(dir)); err != nil {
			return err
		}
		made[dir] = true
		return t.WriteHeader(&tar.Header{Name: dir + "/", Mode: 0o755, Typeflag: tar.TypeDir})
	}
	for name, source := range i.Files {
		if err := folder(path.Dir(name)); err != nil {
			return err
		}
		data, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := t.Write(data); err != nil {
			return err
		}
	}
	for name, target := range i.Links {
		if err := folder(path.Dir(name)); err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}); err != nil {
			return err
		}
	}
	return t.Close()
}
