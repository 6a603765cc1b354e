// registry serves the node's container images, which it makes in memory when it starts: read-only, by HTTP.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	store := newStore()
	listen := flag.String("listen", "127.0.0.1:5000", "`address` to serve on")
	flag.Func("busybox", "`FILE`: docker.io/library/busybox, made of a static busybox", func(file string) error {
		return store.addBusybox(file)
	})
	flag.Func("binary", "`NAME:TAG=FILE=PATH,PATH…`: an image of one static program under these paths, the first of which it runs", func(value string) error {
		name, rest, _ := strings.Cut(value, "=")
		file, paths, ok := strings.Cut(rest, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME:TAG=FILE=PATH", value)
		}
		return store.addBinary(name, file, strings.Split(paths, ","))
	})
	flag.Func("layout", "`NAME:TAG=FOLDER`: the image of an OCI layout", func(value string) error {
		name, folder, ok := strings.Cut(value, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME:TAG=FOLDER", value)
		}
		return store.addLayout(name, folder)
	})
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	log.Fatal(http.ListenAndServe(*listen, store))
}

// ServeHTTP answers what a client asks to pull: /v2/, /v2/NAME/manifests/TAG-or-DIGEST, /v2/NAME/blobs/DIGEST.
func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	log.Print(r.Method, " ", r.URL)
	path := strings.TrimPrefix(r.URL.Path, "/v2/")
	if path == "" {
		w.WriteHeader(http.StatusOK)
		return
	}
	digest := s.find(path)
	found, ok := s.blobs[digest]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", found.mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", fmt.Sprint(len(found.data)))
	if r.Method != http.MethodHead {
		w.Write(found.data)
	}
}

// find gives the digest that a path ends in, or that its tag stands for.
func (s *store) find(path string) string {
	for _, kind := range []string{"/manifests/", "/blobs/"} {
		at := strings.LastIndex(path, kind)
		if at < 0 {
			continue
		}
		name, reference := path[:at], path[at+len(kind):]
		if strings.HasPrefix(reference, "sha256:") {
			return reference
		}
		return s.tags[name+":"+reference]
	}
	return ""
}
