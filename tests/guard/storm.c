/* A job of many processes that fight for the last MiB of their limit, on the CUDA driver API:
     storm PROCESSES SECONDS SEED LEAST_KIB MOST_KIB [KILLS]
   Each process takes and gives back blocks of random sizes and keeps as much as it can; one line at the end:
   allocations, refusals, other errors. With KILLS the parent kills a random child that often and starts
   another, then writes the line, and they go on: whoever waits for it kills the rest. Exit 1: an error that
   is not out-of-memory; whether the limit held is for the emulator's account to say. */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PROCESSES = 64, MOST_BLOCKS = 256, OUT_OF_MEMORY = 2 };

struct Counts {
  uint64_t allocated, refused, failed;
};

static int (*init)(unsigned), (*retain)(void**, int), (*set_current)(void*);
static int (*allocate)(uint64_t*, size_t), (*release)(uint64_t);
static struct Counts* counts;

static uint64_t next(uint64_t* state) {
  *state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = *state;
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int load(void) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (cuda == 0) return fprintf(stderr, "%s\n", dlerror()), 0;
  *(void**)&init = dlsym(cuda, "cuInit");
  *(void**)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
  *(void**)&set_current = dlsym(cuda, "cuCtxSetCurrent");
  *(void**)&allocate = dlsym(cuda, "cuMemAlloc_v2");
  *(void**)&release = dlsym(cuda, "cuMemFree_v2");
  return init && retain && set_current && allocate && release;
}

static void storm(struct Counts* mine, uint64_t seed, uint64_t end_ms, uint64_t least, uint64_t most) {
  uint64_t blocks[MOST_BLOCKS];
  int live = 0;
  void* context = 0;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  /* Contexts cost as well: who finds no room for one tries again while others end. */
  int result = !load() ? -1 : init(0);
  while (result == 0 && now_ms() < end_ms && (result = retain(&context, 0)) == OUT_OF_MEMORY) {
    __atomic_fetch_add(&mine->refused, 1, __ATOMIC_RELAXED);
    usleep(1000);
    result = 0;
  }
  if (context == 0) _exit(result == 0 || result == OUT_OF_MEMORY ? 0 : 1);
  if (result != 0 || set_current(context) != 0) _exit(1);
  while (now_ms() < end_ms) {
    for (int i = 0; i < 64; ++i) {
      if (live == MOST_BLOCKS || (live > 0 && next(&seed) % 100 < 45)) {
        const int victim = (int)(next(&seed) % (unsigned)live);
        if (release(blocks[victim]) != 0) __atomic_fetch_add(&mine->failed, 1, __ATOMIC_RELAXED);
        blocks[victim] = blocks[--live];
        continue;
      }
      const size_t bytes = (size_t)(least + next(&seed) % (most - least + 1)) << 10;
      const int taken = allocate(&blocks[live], bytes);
      live += taken == 0;
      uint64_t* count = taken == 0               ? &mine->allocated
                        : taken == OUT_OF_MEMORY ? &mine->refused
                                                 : &mine->failed;
      __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
    }
  }
  _exit(0);
}

/* Returns how many errors there were. */
static uint64_t report(int processes, int killed) {
  struct Counts sum = {0, 0, 0};
  for (int i = 0; i < processes; ++i) {
    sum.allocated += __atomic_load_n(&counts[i].allocated, __ATOMIC_RELAXED);
    sum.refused += __atomic_load_n(&counts[i].refused, __ATOMIC_RELAXED);
    sum.failed += __atomic_load_n(&counts[i].failed, __ATOMIC_RELAXED);
  }
  printf("{\"allocated\": %llu, \"refused\": %llu, \"failed\": %llu, \"killed\": %d}\n",
         (unsigned long long)sum.allocated, (unsigned long long)sum.refused, (unsigned long long)sum.failed,
         killed);
  return sum.failed;
}

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  const int processes = atoi(argv[1]);
  const uint64_t end_ms = now_ms() + (uint64_t)(atof(argv[2]) * 1000);
  uint64_t seed = strtoull(argv[3], 0, 10);
  const uint64_t least = strtoull(argv[4], 0, 10), most = strtoull(argv[5], 0, 10);
  int kills = argc > 6 ? atoi(argv[6]) : 0;
  pid_t children[MOST_PROCESSES];
  counts =
      mmap(0, sizeof *counts * MOST_PROCESSES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (processes < 1 || processes > MOST_PROCESSES || counts == MAP_FAILED) return 2;
  for (int i = 0; i < processes; ++i) {
    if ((children[i] = fork()) == 0) storm(&counts[i], seed + (uint64_t)i * 1000003, end_ms, least, most);
  }
  int killed = 0;
  for (; killed < kills && now_ms() < end_ms; ++killed) {
    usleep((unsigned)(next(&seed) % 8000));
    const int victim = (int)(next(&seed) % (unsigned)processes);
    kill(children[victim], SIGKILL);
    waitpid(children[victim], 0, 0);
    if ((children[victim] = fork()) == 0) {
      storm(&counts[victim], seed + (uint64_t)killed * 7919, end_ms, least, most);
    }
  }
  if (kills > 0) {
    report(processes, killed);
    fflush(stdout);
  }
  int bad = 0;
  for (int i = 0; i < processes; ++i) {
    int status = 0;
    waitpid(children[i], &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      fprintf(stderr, "child %d ended with status %x\n", i, status);
      bad = 1;
    }
  }
  const uint64_t failed = kills > 0 ? 0 : report(processes, killed);
  return bad || failed != 0;
}
