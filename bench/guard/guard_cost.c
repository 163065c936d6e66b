/* What the guard adds to calls of the driver: guard_cost PROCESSES BATCHES PER_BATCH
   Runs under the guard (bench/guard/run). Batches through the guard and straight into the driver's library
   alternate in one process, so that both meet the same machine; a row's figures are of the pairs'
   differences. All but one of PROCESSES only register. Prints one JSON object a row. */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIVE = 20000 };

struct Driver {
  int (*init)(unsigned);
  int (*total)(size_t*, int);
  int (*create)(void**, unsigned, int);
  int (*allocate)(uint64_t*, size_t);
  int (*release)(uint64_t);
  int (*load)(void**, const void*);
  int (*function)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**);
  int (*synchronize)(void);
};

/* Of this thread's processor time: what neighbours on the machine take is not the guard's, and no call here
 * waits. */
static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void* find(void* library, const char* name) {
  void* address = dlsym(library, name);
  if (address == 0) fprintf(stderr, "%s\n", dlerror()), exit(1);
  return address;
}

static struct Driver open_driver(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  struct Driver driver;
  if (library == 0) fprintf(stderr, "%s\n", dlerror()), exit(1);
  *(void**)&driver.init = find(library, "cuInit");
  *(void**)&driver.total = find(library, "cuDeviceTotalMem_v2");
  *(void**)&driver.create = find(library, "cuCtxCreate_v2");
  *(void**)&driver.allocate = find(library, "cuMemAlloc_v2");
  *(void**)&driver.release = find(library, "cuMemFree_v2");
  *(void**)&driver.load = find(library, "cuModuleLoadData");
  *(void**)&driver.function = find(library, "cuModuleGetFunction");
  *(void**)&driver.launch = find(library, "cuLaunchKernel");
  *(void**)&driver.synchronize = find(library, "cuCtxSynchronize");
  return driver;
}

static void must(int result, const char* what) {
  if (result != 0) fprintf(stderr, "%s: error %d\n", what, result), exit(1);
}

static int by_value(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return left < right ? -1 : left > right;
}

static double quantile(double* values, int count, double q) {
  qsort(values, (size_t)count, sizeof *values, by_value);
  const int at = (int)(q * (count - 1) + 0.5);
  return values[at];
}

typedef void (*Work)(const struct Driver* driver, int times);

static uint64_t addresses[LIVE];
static void* kernel;

static void launches(const struct Driver* driver, int times) {
  uint64_t work = 0;
  void* parameters[] = {&work};
  for (int i = 0; i < times; ++i) driver->launch(kernel, 1, 1, 1, 1, 1, 1, 0, 0, parameters, 0);
}

static void pairs_of(const struct Driver* driver, int times, size_t bytes) {
  for (int i = 0; i < times; ++i) {
    uint64_t address = 0;
    must(driver->allocate(&address, bytes), "allocate");
    must(driver->release(address), "release");
  }
}
static void large_pairs(const struct Driver* driver, int times) { pairs_of(driver, times, 4 << 20); }
static void small_pairs(const struct Driver* driver, int times) { pairs_of(driver, times, 4096); }

/* Blocks of a random walk over all that live are freed in one stretch, which is timed, and allocated again,
   which is not. */
static uint64_t frees(const struct Driver* driver, int times, unsigned round) {
  const uint64_t begin = now();
  for (int i = 0; i < times; ++i) {
    must(driver->release(addresses[(round * 7919u + (unsigned)i * 7u) % LIVE]), "release");
  }
  const uint64_t spent = now() - begin;
  for (int i = 0; i < times; ++i) {
    must(driver->allocate(&addresses[(round * 7919u + (unsigned)i * 7u) % LIVE], 1024), "allocate");
  }
  return spent;
}

static void report(const char* what, int processes, double* guarded, double* plain, double* added,
                   int batches, int per) {
  printf("{\"what\": \"%s\", \"processes\": %d, \"batches\": %d, \"per_batch\": %d, ", what, processes,
         batches, per);
  printf("\"plain_p50_ns\": %.1f, \"guarded_p50_ns\": %.1f, ", quantile(plain, batches, 0.5),
         quantile(guarded, batches, 0.5));
  printf("\"added_p50_ns\": %.1f, \"added_p99_ns\": %.1f}\n", quantile(added, batches, 0.5),
         quantile(added, batches, 0.99));
  fflush(stdout);
}

static void measure(const char* what, Work work, const struct Driver* guard, const struct Driver* driver,
                    int processes, int batches, int per) {
  double* values = calloc((size_t)batches * 3, sizeof *values);
  double *guarded = values, *plain = values + batches, *added = values + 2 * batches;
  for (int i = -2; i < batches; ++i) {
    uint64_t spent[2];
    for (int turn = 0; turn < 2; ++turn) {
      const int through = (turn + i) & 1; /* who comes first changes, too */
      const uint64_t begin = now();
      work(through ? guard : driver, per);
      spent[through] = now() - begin;
      if (work == launches) guard->synchronize();
    }
    if (i < 0) continue;
    guarded[i] = (double)spent[1] / per;
    plain[i] = (double)spent[0] / per;
    added[i] = guarded[i] - plain[i];
  }
  report(what, processes, guarded, plain, added, batches, per);
  free(values);
}

static void measure_frees(const struct Driver* guard, const struct Driver* driver, int processes, int batches,
                          int per) {
  double* values = calloc((size_t)batches * 3, sizeof *values);
  double *guarded = values, *plain = values + batches, *added = values + 2 * batches;
  /* The same number lives on both sides, each on its own: the driver's own look-up is part of neither
   * difference. */
  for (int through = 0; through < 2; ++through) {
    const struct Driver* side = through ? guard : driver;
    for (int i = 0; i < LIVE; ++i) must(side->allocate(&addresses[i], 1024), "allocate");
    for (int i = 0; i < batches; ++i)
      (through ? guarded : plain)[i] = (double)frees(side, per, (unsigned)i) / per;
    for (int i = 0; i < LIVE; ++i) must(side->release(addresses[i]), "release");
  }
  for (int i = 0; i < batches; ++i) added[i] = guarded[i] - plain[i];
  report("free, 20,000 live", processes, guarded, plain, added, batches, per);
  free(values);
}

static void register_others(int processes) {
  int ready[2];
  if (pipe(ready) != 0) exit(1);
  for (int i = 1; i < processes; ++i) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const struct Driver guard = open_driver("libcuda.so.1");
    size_t total = 0;
    must(guard.init(0), "cuInit");
    must(guard.total(&total, 0), "cuDeviceTotalMem");
    if (write(ready[1], "r", 1) != 1) exit(1);
    for (;;) pause();
  }
  char word;
  for (int i = 1; i < processes; ++i) {
    if (read(ready[0], &word, 1) != 1) exit(1);
  }
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int processes = atoi(argv[1]), batches = atoi(argv[2]), per = atoi(argv[3]);
  static const char ptx[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry tranche_busy(.param .u64 us) { ret; "
      "}\n";
  void *context = 0, *module = 0;
  register_others(processes);
  const struct Driver guard = open_driver("libcuda.so.1");
  const struct Driver driver = open_driver("libtranche-driver-cuda.so.1");
  must(guard.init(0), "cuInit");
  must(guard.create(&context, 0, 0), "cuCtxCreate");
  must(guard.load(&module, ptx), "cuModuleLoadData");
  must(guard.function(&kernel, module, "tranche_busy"), "cuModuleGetFunction");
  fprintf(stderr, "the guard %s the launch of kernels\n",
          guard.launch == driver.launch ? "leaves alone" : "wraps");
  measure("kernel launch", launches, &guard, &driver, processes, batches, per);
  measure("allocate + free, 4 MiB", large_pairs, &guard, &driver, processes, batches, per);
  measure("allocate + free, 4 KiB", small_pairs, &guard, &driver, processes, batches, per);
  measure_frees(&guard, &driver, processes, batches, per);
  return 0;
}
