// Hold is a server whose requests last until a file is there, and what makes them.
//
//	hold serve PORT FILE   serve until it is told to end; several may have the port
//	hold ask URL N         make N requests at once of a loopback, and end when all are answered
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

func main() {
	if os.Args[1] == "serve" {
		if err := serve(os.Args[2], os.Args[3]); err != nil {
			log.Fatal(err)
		}
		return
	}
	n, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	ask(os.Args[2], n)
}

func serve(port, file string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil { // another has it, and answers for this one, too
		log.Print(err)
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
		<-stop
		return nil
	}
	return http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := os.Stat(file); err == nil {
				fmt.Fprintln(w, "held")
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}))
}

func ask(url string, n int) {
	at := func(ctx context.Context, network, addr string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+port)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: at}}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			answer, err := client.Get(url)
			if err != nil {
				log.Fatal(err)
			}
			if answer.StatusCode != http.StatusOK {
				log.Fatal(answer.Status)
			}
			_ = answer.Body.Close()
		})
	}
	all.Wait()
}
