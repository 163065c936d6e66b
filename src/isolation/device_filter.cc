#include "isolation/device_filter.h"

#include <linux/bpf.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tranche::isolation {
namespace {

// Registers of the program.
constexpr uint8_t kResult = BPF_REG_0;
constexpr uint8_t kContext = BPF_REG_1;
constexpr uint8_t kType = BPF_REG_2;
constexpr uint8_t kScratch = BPF_REG_3;
constexpr uint8_t kMajor = BPF_REG_4;
constexpr uint8_t kDevice = BPF_REG_5;

// The kernel's own dev_t: 12 bits of major, 20 of minor (include/linux/kdev_t.h).
constexpr unsigned kMinorBits = 20;
constexpr uint32_t kMajorMax = (1U << 12) - 1;
constexpr uint32_t kMinorMax = (1U << kMinorBits) - 1;

bpf_insn instruction(unsigned code, uint8_t destination, uint8_t source, int16_t offset, uint32_t immediate) {
  bpf_insn made{};
  made.code = static_cast<uint8_t>(code);
  made.dst_reg = destination & 0xF;
  made.src_reg = source & 0xF;
  made.off = offset;
  made.imm = static_cast<int32_t>(immediate);
  return made;
}

// Numbers are packed first, so that a rule is one comparison: the kernel walks all paths of a program
// whenever it is loaded, and with three comparisons a rule that took more of each start than any other call.
class FilterProgram {
 public:
  void allow(bool is_block, uint32_t major, uint32_t minor) {
    (is_block ? block_ : character_).push_back(major << kMinorBits | minor);
  }
  // Character devices whatever their minor.
  void allow_majors(uint32_t first, uint32_t last) {
    first_major_ = first;
    last_major_ = last;
  }

  Outcome<FileDescriptor> load() {
    write();
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
  void write() {
    read_request();
    // Over the block rules, each of three instructions, and the refusal behind them.
    const size_t block_length = block_.size() * 3 + 2;
    add(BPF_JMP | BPF_JNE | BPF_K, kType, 0, static_cast<int16_t>(block_length), BPF_DEVCG_DEV_BLOCK);
    for (const uint32_t device : block_) accept(device);
    finish(0);
    refuse_unless(BPF_JEQ, kType, BPF_DEVCG_DEV_CHAR);
    for (const uint32_t device : character_) accept(device);
    refuse_unless(BPF_JGE, kMajor, first_major_);
    refuse_unless(BPF_JLE, kMajor, last_major_);
    finish(1);
  }

  // Leaves type, major and packed device in their registers; making nodes ends here.
  void read_request() {
    // struct bpf_cgroup_dev_ctx { u32 access_type; u32 major; u32 minor; }, access_type = access << 16 |
    // type.
    add(BPF_LDX | BPF_MEM | BPF_W, kType, kContext, 0, 0);
    add(BPF_LDX | BPF_MEM | BPF_W, kMajor, kContext, 4, 0);
    add(BPF_LDX | BPF_MEM | BPF_W, kDevice, kContext, 8, 0);
    add(BPF_ALU64 | BPF_MOV | BPF_X, kScratch, kType, 0, 0);
    add(BPF_ALU64 | BPF_RSH | BPF_K, kScratch, 0, 0, 16);
    add(BPF_ALU64 | BPF_AND | BPF_K, kScratch, 0, 0, BPF_DEVCG_ACC_MKNOD);
    refuse_unless(BPF_JEQ, kScratch, 0);
    add(BPF_ALU64 | BPF_AND | BPF_K, kType, 0, 0, 0xFFFF);
    refuse_unless(BPF_JLE, kMajor, kMajorMax);
    refuse_unless(BPF_JLE, kDevice, kMinorMax);
    add(BPF_ALU64 | BPF_MOV | BPF_X, kScratch, kMajor, 0, 0);
    add(BPF_ALU64 | BPF_LSH | BPF_K, kScratch, 0, 0, kMinorBits);
    add(BPF_ALU64 | BPF_OR | BPF_X, kDevice, kScratch, 0, 0);
  }

  void accept(uint32_t device) {
    add(BPF_JMP32 | BPF_JNE | BPF_K, kDevice, 0, 2, device);
    finish(1);
  }
  void refuse_unless(unsigned comparison, uint8_t value, uint32_t immediate) {
    add(BPF_JMP | comparison | BPF_K, value, 0, 2, immediate);
    finish(0);
  }
  void finish(uint32_t verdict) {
    add(BPF_ALU64 | BPF_MOV | BPF_K, kResult, 0, 0, verdict);
    add(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
  }
  void add(unsigned code, uint8_t destination, uint8_t source, int16_t offset, uint32_t immediate) {
    code_.push_back(instruction(code, destination, source, offset, immediate));
  }

  std::vector<uint32_t> character_;
  std::vector<uint32_t> block_;
  uint32_t first_major_ = 1;  // none
  uint32_t last_major_ = 0;
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
  program.allow_majors(136, 143);  // pts
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

Outcome<FileDescriptor> load_device_filter(const std::vector<DeviceNode>& nodes) {
  FilterProgram program;
  allow_ordinary_nodes(program);
  for (const DeviceNode& node : nodes) program.allow(node.is_block, node.major, node.minor);
  return program.load();
}

Outcome<int> DeviceFilters::find(const std::vector<DeviceNode>& nodes) {
  const auto known =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& one) { return one.nodes == nodes; });
  if (known != kept_.end()) {
    std::rotate(kept_.begin(), known, known + 1);
    return kept_.front().filter.get();
  }
  TRY_ASSIGN(FileDescriptor loaded, load_device_filter(nodes));
  if (kept_.size() == kKept) kept_.pop_back();
  kept_.insert(kept_.begin(), Kept{nodes, std::move(loaded)});
  return kept_.front().filter.get();
}

Outcome<void> attach_device_filter(int cgroup, int filter) {
  bpf_attr attributes{};
  attributes.target_fd = static_cast<uint32_t>(cgroup);
  attributes.attach_bpf_fd = static_cast<uint32_t>(filter);
  attributes.attach_type = BPF_CGROUP_DEVICE;
  attributes.attach_flags = BPF_F_ALLOW_MULTI;
  if (::syscall(SYS_bpf, BPF_PROG_ATTACH, &attributes, sizeof attributes) != 0) {
    return call_failed("attaching the device filter");
  }
  return {};
}

}  // namespace tranche::isolation
