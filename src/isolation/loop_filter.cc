#include "isolation/loop_filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <iterator>

namespace tranche::isolation {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kNative = AUDIT_ARCH_X86_64;
constexpr uint32_t kCompatible = AUDIT_ARCH_I386;
constexpr uint32_t kCompatibleIoctl = 54;
constexpr uint32_t kX32Bit = 0x40000000;  // x32 numbers share the native architecture: ioctl is 514 there
#elif defined(__aarch64__)
constexpr uint32_t kNative = AUDIT_ARCH_AARCH64;
constexpr uint32_t kCompatible = AUDIT_ARCH_ARM;
constexpr uint32_t kCompatibleIoctl = 54;
constexpr uint32_t kX32Bit = 0;
#else
#error "state this processor's audit architecture"
#endif
constexpr uint32_t kX32Ioctl = kX32Bit | 514;
constexpr uint32_t kLoopIoctls = 0x4C00;  // linux/loop.h: LOOP_SET_FD 0x4C00 .. LOOP_CTL_GET_FREE 0x4C82
constexpr uint32_t kIoctlGroup = 0xFF00;

constexpr sock_filter statement(unsigned code, uint32_t value) {
  return {static_cast<uint16_t>(code), 0, 0, value};
}
constexpr sock_filter jump_if_equal(uint32_t value, uint8_t then_skip, uint8_t else_skip) {
  return {BPF_JMP | BPF_JEQ | BPF_K, then_skip, else_skip, value};
}

constexpr unsigned kLoad = BPF_LD | BPF_W | BPF_ABS;

// Indices after each line: how far its jumps go is counted in instructions that follow.
constexpr sock_filter kProgram[] = {
    statement(kLoad, offsetof(seccomp_data, arch)),
    jump_if_equal(kNative, 3, 0),
    jump_if_equal(kCompatible, 0, 9),  // unknown architecture: refuse
    statement(kLoad, offsetof(seccomp_data, nr)),
    jump_if_equal(kCompatibleIoctl, 3, 6),
    statement(kLoad, offsetof(seccomp_data, nr)),
    jump_if_equal(SYS_ioctl, 1, 0),
    jump_if_equal(kX32Ioctl, 0, 3),
    statement(kLoad, offsetof(seccomp_data, args[1])),  // little endian: the low half, all the kernel uses
    statement(BPF_ALU | BPF_AND | BPF_K, kIoctlGroup),
    jump_if_equal(kLoopIoctls, 1, 0),
    statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
};

}  // namespace

Outcome<void> refuse_loop_ioctls() {
  sock_fprog program{};
  program.len = static_cast<unsigned short>(std::size(kProgram));
  program.filter = const_cast<sock_filter*>(kProgram);
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) {
    return call_failed("refusing loop-device controls");
  }
  return {};
}

}  // namespace tranche::isolation
