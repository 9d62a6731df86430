// Package wgspace is WireGuard in user space, for hosts whose kernel lacks it: a separate process with a tunnel device,
// which outlives the souk that started it and ends when the device is removed. Package wgctrl configures it by its
// socket, like the kernel's.
package wgspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"
)

// Ready is the descriptor to which the process writes one line once the device exists: "ok", or the error.
const Ready = 3

// Socket returns the socket to configure a device; only root may use it.
func Socket(name string) string { return "/var/run/wireguard/" + name + ".sock" }

// Run runs the process of a device, for packets of up to mtu bytes. It returns when the device is removed, or ctx ends.
func Run(ctx context.Context, name, mtu string) error {
	ready := os.NewFile(Ready, "ready")
	run, err := begin(name, mtu)
	said := "ok"
	if err != nil {
		said = err.Error()
	}
	_, _ = fmt.Fprintln(ready, said) // the process that started it may be gone
	_ = ready.Close()
	if err != nil {
		return err
	}
	return run(ctx)
}

func begin(name, mtu string) (run func(context.Context) error, err error) {
	size, err := strconv.Atoi(mtu)
	if err != nil {
		return nil, err
	}
	t, err := tun.CreateTUN(name, size)
	if err != nil {
		return nil, fmt.Errorf("make a tunnel device: %w", err)
	}
	file, err := ipc.UAPIOpen(name)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	d := device.NewDevice(t, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, "wireguard: "))
	at, err := ipc.UAPIListen(name, file)
	if err != nil {
		d.Close()
		return nil, err
	}
	failed := make(chan error, 1)
	go func() {
		for {
			c, err := at.Accept()
			if err != nil {
				failed <- err
				return
			}
			go d.IpcHandle(c)
		}
	}()
	return func(ctx context.Context) (err error) {
		select {
		case <-ctx.Done():
		case <-d.Wait():
		case err = <-failed:
		}
		_ = at.Close() // its file may be gone already
		d.Close()
		return err
	}, nil
}
