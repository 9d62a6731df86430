/* A small call of CUDA: it counts the devices, takes memory of each, fills it and reads it back. It needs the driver's library
 * alone, which it opens when it runs. cc -O -o cuda-check cuda-check.c -ldl */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *lib;

static void *must(const char *name) {
	void *f = dlsym(lib, name);
	if (!f) {
		printf("libcuda has no %s\n", name);
		exit(1);
	}
	return f;
}

#define CALL(f, ...) \
	do { \
		int code = ((int (*)())must(#f))(__VA_ARGS__); \
		if (code) { \
			printf("%s says %d\n", #f, code); \
			exit(1); \
		} \
	} while (0)

int main(void) {
	const char *at[] = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"};
	for (int i = 0; i < 3 && !lib; i++)
		lib = dlopen(at[i], RTLD_NOW);
	if (!lib) {
		printf("no libcuda: %s\n", dlerror());
		return 1;
	}
	int count = 0;
	CALL(cuInit, 0);
	CALL(cuDeviceGetCount, &count);
	for (int i = 0; i < count; i++) {
		int dev;
		char name[128] = "";
		void *ctx;
		unsigned long long at;
		size_t n = 64 << 20;
		unsigned got = 0;
		CALL(cuDeviceGet, &dev, i);
		CALL(cuDeviceGetName, name, (int)sizeof name, dev);
		CALL(cuDevicePrimaryCtxRetain, &ctx, dev);
		CALL(cuCtxSetCurrent, ctx);
		CALL(cuMemAlloc_v2, &at, n);
		CALL(cuMemsetD32_v2, at, 0x50BA17u, n / 4);
		CALL(cuMemcpyDtoH_v2, &got, at + n - 4, (size_t)4);
		CALL(cuMemFree_v2, at);
		if (got != 0x50BA17u) {
			printf("device %d gives back %x\n", i, got);
			return 1;
		}
		printf("device %d: %s, 64 MiB written and read\n", i, name);
	}
	printf("devices: %d\n", count);
	return count ? 0 : 1;
}
