#include "isolation/device_filter.h"

#include <linux/bpf.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>

#include "isolation/file.h"

namespace tranche::isolation {
namespace {

// Registers of the program.
constexpr uint8_t kResult = BPF_REG_0;
constexpr uint8_t kContext = BPF_REG_1;
constexpr uint8_t kType = BPF_REG_2;
constexpr uint8_t kAccess = BPF_REG_3;
constexpr uint8_t kMajor = BPF_REG_4;
constexpr uint8_t kMinor = BPF_REG_5;

constexpr uint32_t kAnyMinor = ~0U;

bpf_insn instruction(unsigned code, uint8_t destination, uint8_t source, int16_t offset, uint32_t immediate) {
  bpf_insn made{};
  made.code = static_cast<uint8_t>(code);
  made.dst_reg = destination & 0xF;
  made.src_reg = source & 0xF;
  made.off = offset;
  made.imm = static_cast<int32_t>(immediate);
  return made;
}

class FilterProgram {
 public:
  FilterProgram() {
    // struct bpf_cgroup_dev_ctx { u32 access_type; u32 major; u32 minor; }, access_type = access << 16 |
    // type.
    add(BPF_LDX | BPF_MEM | BPF_W, kType, kContext, 0, 0);
    add(BPF_LDX | BPF_MEM | BPF_W, kMajor, kContext, 4, 0);
    add(BPF_LDX | BPF_MEM | BPF_W, kMinor, kContext, 8, 0);
    add(BPF_ALU64 | BPF_MOV | BPF_X, kAccess, kType, 0, 0);
    add(BPF_ALU64 | BPF_RSH | BPF_K, kAccess, 0, 0, 16);
    add(BPF_ALU64 | BPF_AND | BPF_K, kType, 0, 0, 0xFFFF);
    add(BPF_ALU64 | BPF_AND | BPF_K, kAccess, 0, 0, BPF_DEVCG_ACC_MKNOD);
    add(BPF_JMP | BPF_JEQ | BPF_K, kAccess, 0, 2, 0);
    finish(0);
  }

  void allow(bool is_block, uint32_t major, uint32_t minor) {
    const int16_t rest = minor == kAnyMinor ? 2 : 3;  // instructions of the rule after the second comparison
    add(BPF_JMP | BPF_JNE | BPF_K, kType, 0, static_cast<int16_t>(rest + 1),
        is_block ? BPF_DEVCG_DEV_BLOCK : BPF_DEVCG_DEV_CHAR);
    add(BPF_JMP | BPF_JNE | BPF_K, kMajor, 0, rest, major);
    if (minor != kAnyMinor) add(BPF_JMP | BPF_JNE | BPF_K, kMinor, 0, 2, minor);
    finish(1);
  }

  Outcome<FileDescriptor> load() {
    finish(0);
    static const char kLicense[] = "Apache-2.0";
    bpf_attr attributes{};
    attributes.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
    attributes.insns = reinterpret_cast<uint64_t>(code_.data());
    attributes.insn_cnt = static_cast<uint32_t>(code_.size());
    attributes.license = reinterpret_cast<uint64_t>(kLicense);
    memcpy(attributes.prog_name, "tranche_devices", sizeof "tranche_devices");
    FileDescriptor program(
        static_cast<int>(::syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof attributes)));
    if (!program) return call_failed("loading the device filter");
    return program;
  }

 private:
  void add(unsigned code, uint8_t destination, uint8_t source, int16_t offset, uint32_t immediate) {
    code_.push_back(instruction(code, destination, source, offset, immediate));
  }
  void finish(uint32_t verdict) {
    add(BPF_ALU64 | BPF_MOV | BPF_K, kResult, 0, 0, verdict);
    add(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
  }

  std::vector<bpf_insn> code_;
};

// Numbers from the kernel's Documentation/admin-guide/devices.txt.
void allow_ordinary_nodes(FilterProgram& program) {
  constexpr uint32_t kMemoryMajor = 1;
  for (const uint32_t minor : {3U, 5U, 7U, 8U, 9U}) program.allow(false, kMemoryMajor, minor);
  program.allow(false, 5, 0);  // tty
  program.allow(false, 5, 2);  // ptmx
  program.allow(false, 10,
                229);  // fuse: rootless containers and sshfs; open to everyone on every distribution
  for (uint32_t major = 136; major <= 143; ++major) program.allow(false, major, kAnyMinor);  // pts
}

}  // namespace

Outcome<DeviceNode> find_device_node(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return call_failed(path);
  if (!S_ISCHR(status.st_mode) && !S_ISBLK(status.st_mode))
    return failed(ENODEV, path + " is not a device node");
  return DeviceNode{S_ISBLK(status.st_mode), major(status.st_rdev), minor(status.st_rdev)};
}

Outcome<std::vector<DeviceNode>> find_gpu_nodes(const uint32_t* minors, uint32_t count) {
  std::vector<DeviceNode> nodes;
  for (uint32_t i = 0; i < count; ++i) {
    const auto node = find_device_node("/dev/nvidia" + std::to_string(minors[i]));
    if (!node) return failed(ENODEV, node.error().text + "; is the driver loaded?");
    nodes.push_back(*node);
  }
  if (count == 0) return nodes;
  for (const char* control : {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}) {
    if (const auto node = find_device_node(control)) nodes.push_back(*node);
  }
  return nodes;
}

Outcome<void> attach_device_filter(int cgroup, const std::vector<DeviceNode>& nodes) {
  FilterProgram program;
  allow_ordinary_nodes(program);
  for (const DeviceNode& node : nodes) program.allow(node.is_block, node.major, node.minor);
  TRY_ASSIGN(const FileDescriptor loaded, program.load());
  bpf_attr attributes{};
  attributes.target_fd = static_cast<uint32_t>(cgroup);
  attributes.attach_bpf_fd = static_cast<uint32_t>(loaded.get());
  attributes.attach_type = BPF_CGROUP_DEVICE;
  attributes.attach_flags = BPF_F_ALLOW_MULTI;
  if (::syscall(SYS_bpf, BPF_PROG_ATTACH, &attributes, sizeof attributes) != 0) {
    return call_failed("attaching the device filter");
  }
  return {};
}

}  // namespace tranche::isolation
