// Webhook is the tutorial's hook as a webhook, and an operator that calls it: two processes of one program.
//
//	webhook serve                 prints its address, serves until the end of its standard input
//	webhook call http://ADDRESS   for each line "WAY FILE COUNT" sends the request in FILE that often, and prints the
//	                              nanoseconds that each call took
package main

import (
	"fmt"
	"os"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		err = serve()
	case len(os.Args) == 3 && os.Args[1] == "call":
		err = call(os.Args[2])
	default:
		err = fmt.Errorf("usage: %s serve | call http://ADDRESS", os.Args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}
