#include "isolation/user_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>

namespace tranche::isolation {
namespace {

constexpr const char* kNullDevice = "/dev/null";

bool is_null_device(const struct stat& status) {
  return S_ISCHR(status.st_mode) && major(status.st_rdev) == 1 && minor(status.st_rdev) == 3;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

tl::unexpected<Failure> log_failure(const std::string& path, uint32_t uid) {
  const int error = errno;
  struct stat status {};
  if (error == ELOOP) {
    return failed(ELOOP, "log " + path + " is a symbolic link; name the file itself");
  }
  if (error == ENXIO)
    return failed(ENXIO, "log " + path + " is a pipe without a reader; name a regular file");
  if (error == ENOENT && ::stat(folder_of(path).c_str(), &status) != 0) {
    return failed(ENOENT, "log " + path + ": folder " + folder_of(path) + " does not exist; make it first");
  }
  // Where fs.protected_regular is set, the kernel itself refuses others' files in a folder like /tmp,
  // whatever their permissions are.
  if (error == EACCES && ::lstat(path.c_str(), &status) == 0 && status.st_uid != uid &&
      ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) == 0)
    return failed(EPERM, "log " + path + " belongs to another user");
  if (error == EACCES) {
    return failed(EACCES, "log " + path +
                              ": no permission to write it or into its folder; choose another with --output");
  }
  return tl::unexpected<Failure>(system_failure(error, "log " + path));
}

// O_NONBLOCK served to get past the open of a pipe; regular files have no use for it.
void make_blocking(int file) {
  const int flags = ::fcntl(file, F_GETFL);
  if (flags >= 0) ::fcntl(file, F_SETFL, flags & ~O_NONBLOCK);
}

}  // namespace

Outcome<FileDescriptor> open_log(const std::string& path, uint32_t uid) {
  const char* name = path.empty() ? kNullDevice : path.c_str();
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  FileDescriptor file(::open(name, kFlags, 0600));
  if (!file) return log_failure(path, uid);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return call_failed("log " + path);
  if (is_null_device(status)) return file;
  if (!S_ISREG(status.st_mode)) return failed(EINVAL, "log " + path + " is not a regular file");
  if (status.st_uid != uid) return failed(EPERM, "log " + path + " belongs to another user");
  make_blocking(file.get());
  return file;
}

Outcome<FileDescriptor> open_input(const std::string& path, bool follow_last) {
  const char* name = path.empty() ? kNullDevice : path.c_str();
  FileDescriptor file(
      ::open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow_last ? 0 : O_NOFOLLOW)));
  if (!file) return call_failed(path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return call_failed(path);
  if (!S_ISREG(status.st_mode) && !is_null_device(status))
    return failed(EINVAL, path + " is not a regular file");
  make_blocking(file.get());
  return file;
}

}  // namespace tranche::isolation
