// tranche-guard-fit: makes the guard's libraries fit one driver. Programs learn what a driver can do by
// looking for names, so a name that this driver does not have must not be found in the guard either: its
// entry in the copy's table of symbols becomes an undefined one, which look-ups skip. `--without NAME` hides
// a name that the driver has: the driver's own function is found then (for tests: a guard that lacks one
// hook).
//
// `--socket PATH`: where the copy finds its arbiter, for use without root.
//
//   tranche-guard-fit GUARD_LIBRARY DRIVER_LIBRARY COPY [--socket PATH] [--without NAME]...
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/guard.h"

struct Image {
  unsigned char* bytes;
  size_t size;
  Elf64_Sym* symbols;
  size_t symbol_count;
  const char* names;
  size_t names_size;
};

static bool fail(const char* path, const char* why) {
  fprintf(stderr, "tranche-guard-fit: %s: %s\n", path, why);
  return false;
}

static bool read_file(const char* path, struct Image* image) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) return fail(path, strerror(errno));
  image->size = (size_t)status.st_size;
  void* memory =
      image->size == 0 ? MAP_FAILED : mmap(0, image->size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  close(file);
  if (memory == MAP_FAILED) return fail(path, "cannot be mapped");
  image->bytes = memory;
  return true;
}

static bool inside(const struct Image* image, uint64_t offset, uint64_t size) {
  return offset <= image->size && size <= image->size - offset;
}

// Finds the dynamic symbols by the table of sections, which linkers keep in shared libraries.
static bool find_symbols(const char* path, struct Image* image) {
  const Elf64_Ehdr* header = (const void*)image->bytes;
  if (image->size < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(Elf64_Shdr) ||
      !inside(image, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr))) {
    return fail(path, "is not a 64-bit shared library with a table of sections");
  }
  const Elf64_Shdr* sections = (const void*)(image->bytes + header->e_shoff);
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr* table = &sections[i];
    if (table->sh_type != SHT_DYNSYM || table->sh_link >= header->e_shnum) continue;
    const Elf64_Shdr* names = &sections[table->sh_link];
    if (!inside(image, table->sh_offset, table->sh_size) ||
        !inside(image, names->sh_offset, names->sh_size) || names->sh_size == 0 ||
        image->bytes[names->sh_offset + names->sh_size - 1] != 0) {
      break;
    }
    image->symbols = (void*)(image->bytes + table->sh_offset);
    image->symbol_count = table->sh_size / sizeof(Elf64_Sym);
    image->names = (const char*)image->bytes + names->sh_offset;
    image->names_size = names->sh_size;
    return true;
  }
  return fail(path, "has no table of dynamic symbols");
}

static const char* name_of(const struct Image* image, const Elf64_Sym* symbol) {
  return symbol->st_name < image->names_size ? image->names + symbol->st_name : "";
}

static bool defines(const struct Image* image, const char* name) {
  for (size_t i = 0; i < image->symbol_count; ++i) {
    if (image->symbols[i].st_shndx != SHN_UNDEF && strcmp(name_of(image, &image->symbols[i]), name) == 0)
      return true;
  }
  return false;
}

static bool is_named(const char* name, char* const* without, int count) {
  for (int i = 0; i < count; ++i) {
    if (strcmp(without[i], name) == 0) return true;
  }
  return false;
}

static int hide(struct Image* guard, const struct Image* driver, char* const* without, int without_count) {
  int hidden = 0;
  for (size_t i = 0; i < guard->symbol_count; ++i) {
    Elf64_Sym* symbol = &guard->symbols[i];
    if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol->st_info) == STB_LOCAL) continue;
    const char* name = name_of(guard, symbol);
    if (defines(driver, name) && !is_named(name, without, without_count)) continue;
    symbol->st_shndx = SHN_UNDEF;
    symbol->st_value = 0;
    symbol->st_info = ELF64_ST_INFO(STB_WEAK, STT_NOTYPE);
    ++hidden;
  }
  return hidden;
}

// The guard's path of its arbiter becomes another, in the file: no variable of the environment can name one.
static bool move_socket(const char* name, struct Image* guard, const char* path) {
  const size_t mark = sizeof TRANCHE_GUARD_SOCKET_MARK - 1;
  if (strlen(path) >= TRANCHE_GUARD_SOCKET_ROOM) return fail(path, "is too long for a socket");
  unsigned char* place = memmem(guard->bytes, guard->size, TRANCHE_GUARD_SOCKET_MARK "/", mark + 1);
  if (place == 0 || guard->size - (size_t)(place - guard->bytes) < mark + TRANCHE_GUARD_SOCKET_ROOM) {
    return fail(name, "has no place for a socket's path");
  }
  memset(place + mark, 0, TRANCHE_GUARD_SOCKET_ROOM);
  memcpy(place + mark, path, strlen(path));
  return true;
}

// A new file renamed into place: a library that a process has mapped is never written to.
static bool write_copy(const char* path, const struct Image* image) {
  char temporary[4096];
  if (snprintf(temporary, sizeof temporary, "%s.new", path) >= (int)sizeof temporary)
    return fail(path, "too long");
  unlink(temporary);
  const int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return fail(temporary, strerror(errno));
  size_t done = 0;
  while (done < image->size) {
    const ssize_t count = write(file, image->bytes + done, image->size - done);
    if (count <= 0) break;
    done += (size_t)count;
  }
  const bool written = done == image->size && fchmod(file, 0644) == 0;
  close(file);
  if (written && rename(temporary, path) == 0) return true;
  fail(path, strerror(errno));
  unlink(temporary);
  return false;
}

int main(int argc, char** argv) {
  char* without[256];
  int without_count = 0;
  const char* socket_path = 0;
  int at = 4;
  for (; at + 1 < argc; at += 2) {
    if (strcmp(argv[at], "--without") == 0 && without_count < 256) {
      without[without_count++] = argv[at + 1];
    } else if (strcmp(argv[at], "--socket") == 0) {
      socket_path = argv[at + 1];
    } else {
      break;
    }
  }
  if (argc < 4 || at != argc) {
    fputs("usage: tranche-guard-fit GUARD_LIBRARY DRIVER_LIBRARY COPY [--socket PATH] [--without NAME]...\n",
          stderr);
    return 2;
  }
  struct Image guard = {0};
  struct Image driver = {0};
  if (!read_file(argv[1], &guard) || !find_symbols(argv[1], &guard)) return 1;
  if (!read_file(argv[2], &driver) || !find_symbols(argv[2], &driver)) return 1;
  const int hidden = hide(&guard, &driver, without, without_count);
  if (hidden < without_count) return fail(argv[1], "does not have every name of --without"), 1;
  if (socket_path != 0 && !move_socket(argv[1], &guard, socket_path)) return 1;
  return write_copy(argv[3], &guard) ? 0 : 1;
}
