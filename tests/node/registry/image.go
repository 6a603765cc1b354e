// What the registry holds, and how images are made of programs.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
	searchPath   = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

type blob struct {
	mediaType string
	data      []byte
}

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
}

type store struct {
	blobs map[string]blob   // by digest
	tags  map[string]string // NAME:TAG to digest
}

func newStore() *store {
	return &store{blobs: map[string]blob{}, tags: map[string]string{}}
}

func (s *store) put(mediaType string, data []byte) descriptor {
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	s.blobs[digest] = blob{mediaType, data}
	return descriptor{mediaType, digest, len(data)}
}

func (s *store) putJSON(mediaType string, value any) (descriptor, error) {
	data, err := json.Marshal(value)
	return s.put(mediaType, data), err
}

// addBusybox makes /bin of a static busybox: itself, and a link for each of its applets.
func (s *store) addBusybox(file string) error {
	listed, err := exec.Command(file, "--list").Output()
	if err != nil {
		return fmt.Errorf("%s --list: %w", file, err)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	entries := []entry{
		folder("bin/", 0o755), folder("etc/", 0o755), folder("root/", 0o700), folder("tmp/", 0o1777), folder("var/", 0o755),
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnogroup:x:65534:\n")},
		{name: "bin/busybox", mode: 0o755, data: program},
	}
	for _, applet := range strings.Fields(string(listed)) {
		if applet != "busybox" {
			entries = append(entries, entry{name: "bin/" + applet, link: "busybox"})
		}
	}
	return s.add("library/busybox:latest", entries, map[string]any{"Env": []string{searchPath}, "Cmd": []string{"sh"}})
}

// addBinary makes an image of one static program; the names after the first are links to it.
func (s *store) addBinary(name, file string, paths []string) error {
	program, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	entries := []entry{folder("tmp/", 0o1777)}
	made := map[string]bool{}
	for i, full := range paths {
		inside := strings.TrimPrefix(full, "/")
		for at, letter := range inside {
			if parent := inside[:at+1]; letter == '/' && !made[parent] {
				made[parent] = true
				entries = append(entries, folder(parent, 0o755))
			}
		}
		if i == 0 {
			entries = append(entries, entry{name: inside, mode: 0o755, data: program})
		} else {
			entries = append(entries, entry{name: inside, link: path.Join("/", paths[0])})
		}
	}
	return s.add(name, entries, map[string]any{"Env": []string{searchPath}, "Entrypoint": paths[:1]})
}

// addLayout takes over an image that another tool has made.
func (s *store) addLayout(name, layout string) error {
	data, err := os.ReadFile(filepath.Join(layout, "index.json"))
	if err != nil {
		return err
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(data, &index); err != nil || len(index.Manifests) != 1 {
		return fmt.Errorf("%s/index.json does not list one manifest (%v)", layout, err)
	}
	files, err := filepath.Glob(filepath.Join(layout, "blobs/sha256/*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		s.put(mediaTypeOf(data), data)
	}
	manifest := index.Manifests[0]
	held, ok := s.blobs[manifest.Digest]
	if !ok {
		return fmt.Errorf("%s has no blob %s", layout, manifest.Digest)
	}
	s.blobs[manifest.Digest] = blob{manifest.MediaType, held.data}
	s.tag(name, manifest)
	return nil
}

// mediaTypeOf knows manifests and lists of them by what they say of themselves; for others no client asks.
func mediaTypeOf(data []byte) string {
	var said struct{ MediaType string }
	if bytes.HasPrefix(data, []byte("{")) && json.Unmarshal(data, &said) == nil && said.MediaType != "" {
		return said.MediaType
	}
	return "application/octet-stream"
}

func (s *store) tag(name string, manifest descriptor) {
	s.tags[name] = manifest.Digest
	log.Print(name, " ", manifest.Digest)
}

// add makes an image of one layer.
func (s *store) add(name string, entries []entry, settings map[string]any) error {
	archive, err := pack(entries)
	if err != nil {
		return err
	}
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	writer.Write(archive) // into memory: Close reports the first error
	if err := writer.Close(); err != nil {
		return err
	}
	config, err := s.putJSON(configType, map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       settings,
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(archive))}},
	})
	if err != nil {
		return err
	}
	manifest, err := s.putJSON(manifestType, map[string]any{
		"schemaVersion": 2,
		"mediaType":     manifestType,
		"config":        config,
		"layers":        []descriptor{s.put(layerType, zipped.Bytes())},
	})
	if err == nil {
		s.tag(name, manifest)
	}
	return err
}

// entry is a folder (its name ends in a slash), a link, or a file.
type entry struct {
	name, link string
	mode       int64
	data       []byte
}

func folder(name string, mode int64) entry { return entry{name: name, mode: mode} }

func pack(entries []entry) ([]byte, error) {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, e := range entries {
		header := tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), Typeflag: tar.TypeReg}
		switch {
		case e.link != "":
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, e.link, 0o777
		case strings.HasSuffix(e.name, "/"):
			header.Typeflag = tar.TypeDir
		}
		if err := writer.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := writer.Close()
	return archive.Bytes(), err
}
