// pause is the first process of a Pod, and of the node itself: it keeps namespaces open and buries the dead.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for {
		for { // also before the first signal: whoever became this process by exec may have left children
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 && err != syscall.EINTR {
				break
			}
		}
		if s := <-signals; s != syscall.SIGCHLD {
			return
		}
	}
}
