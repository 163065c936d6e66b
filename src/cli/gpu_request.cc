// -G, --gpu-mem, --gpu-compute and --exclusive: one request out of four options.
#include "base/quantity_text.h"
#include "cli/job_request.h"
#include "cli/option_error.h"
#include "cli/text.h"
#include "codec/limits.h"

namespace tranche::cli {
namespace {

Result<MilliGpu> parse_percent(std::string_view text) {
  if (!text.ends_with('%'))
    return invalid("write a percentage of one GPU, such as 30%, not " + in_quotes(text));
  TRY_ASSIGN(const int64_t thousandths, parse_thousandths(text.substr(0, text.size() - 1)));
  // 30% is 30,000 thousandths of a percent and 300 milli-GPU.
  const int64_t milli = thousandths / 100;
  if (milli < 1 || milli > kWholeGpu.count() || thousandths % 100 != 0) {
    return invalid("the percentage lies between 0.1% and 100%, in steps of 0.1%, not " + in_quotes(text));
  }
  return MilliGpu(milli);
}

// "1..4": whole GPUs, as many of them as are free when the job starts.
Result<void> parse_gpu_range(std::string_view text, size_t dots, GpuRequest& gpu) {
  constexpr std::string_view kWhat = "--gpus: the number of GPUs";
  if (text.find('.') != dots || text.find('.', dots + 2) != std::string_view::npos) {
    return invalid("--gpus: a range is of whole GPUs, such as 1..4, not " + in_quotes(text) +
                   "; a part of one that may grow is --gpu-mem 10G..20G");
  }
  TRY_ASSIGN(const int64_t low,
             parse_integer(text.substr(0, dots), 1, int64_t{limits::kGpusPerTaskMax}, kWhat));
  TRY_ASSIGN(const int64_t high,
             parse_integer(text.substr(dots + 2), 1, int64_t{limits::kGpusPerTaskMax}, kWhat));
  if (high < low) return invalid("--gpus: write the smaller number first, not " + in_quotes(text));
  gpu.count = static_cast<uint32_t>(low);
  if (high > low) gpu.count_max = static_cast<uint32_t>(high);
  return {};
}

// The number part of -G: "2" whole GPUs, "1..4" of them or "0.5" of one.
Result<void> parse_gpu_amount(std::string_view text, GpuRequest& gpu) {
  if (const size_t dots = text.find(".."); dots != std::string_view::npos)
    return parse_gpu_range(text, dots, gpu);
  TRY_OPTION(const int64_t milli, "--gpus", parse_thousandths(text));
  if (milli % kWholeGpu.count() == 0) {
    if (milli / kWholeGpu.count() > limits::kGpusPerTaskMax) {
      return invalid("--gpus: " + in_quotes(text) + " GPUs are more than any machine has");
    }
    gpu.count = static_cast<uint32_t>(milli / kWholeGpu.count());
    return {};
  }
  if (milli > kWholeGpu.count()) {
    return invalid("--gpus: " + in_quotes(text) +
                   " is neither a whole number of GPUs nor a part of one; write 2 or 0.5");
  }
  gpu.count = 1;
  gpu.kind = SliceKind::fraction;
  gpu.compute = MilliGpu(milli);
  return {};
}

Result<void> take_topology(const Arguments& arguments, GpuRequest& gpu) {
  const bool nvlink = arguments.has("nvlink");
  const bool numa = arguments.has("numa");
  if (!nvlink && !numa) return {};
  const std::string option = nvlink ? "--nvlink" : "--numa";
  if (nvlink && numa) return invalid("--nvlink and --numa: give one of the two");
  if (gpu.count == 0 || gpu.kind != SliceKind::whole)
    return invalid(option + " is for whole GPUs; ask for them with -G 2");
  gpu.topology = nvlink ? GpuTopology::nvlink : GpuTopology::numa_node;
  return {};
}

}  // namespace

Result<void> parse_gpu_memory(const std::string& text, GpuRequest& gpu) {
  const size_t dots = text.find("..");
  if (dots == 0 || (dots != std::string::npos && dots + 2 == text.size())) {
    return invalid("--gpu-mem: " + in_quotes(text) + " lacks " +
                   (dots == 0 ? "what is guaranteed" : "how much it may use at most") +
                   "; write both, such as 10G..20G");
  }
  TRY_OPTION(gpu.memory, "--gpu-mem", parse_memory(text.substr(0, dots)));
  if (gpu.memory.count() == 0) return invalid("--gpu-mem: write the memory that it needs, such as 20G");
  if (dots == std::string::npos) return {};
  TRY_OPTION(gpu.memory_limit, "--gpu-mem", parse_memory(text.substr(dots + 2)));
  if (gpu.memory_limit < gpu.memory) {
    return invalid("--gpu-mem: " + in_quotes(text) +
                   " allows less than it guarantees; write the guarantee first, such as 10G..20G");
  }
  if (gpu.memory_limit == gpu.memory) gpu.memory_limit = MiB();
  return {};
}

Result<GpuRequest> parse_gpu_request(const Arguments& arguments) {
  GpuRequest gpu;
  const std::string* amount = arguments.find("gpus");
  const std::string* memory = arguments.find("gpu-mem");
  const std::string* compute = arguments.find("gpu-compute");
  if (amount != nullptr) {
    const size_t colon = amount->find(':');
    const bool typed = colon != std::string::npos;
    if (typed) gpu.type = amount->substr(0, colon);
    // "-G h100-80" alone is one of that type; no type begins with a digit, a dot or a sign.
    const bool begins_like_number =
        std::string_view("0123456789.-+:").find(amount->front()) != std::string_view::npos;
    if (typed && begins_like_number) {
      return invalid("--gpus: write TYPE:N, such as h100-80:2, not " + in_quotes(*amount));
    }
    const bool is_type = !typed && !begins_like_number;
    if (is_type) {
      gpu.type = *amount;
      gpu.count = 1;
    } else {
      TRY(parse_gpu_amount(typed ? std::string_view(*amount).substr(colon + 1) : *amount, gpu));
    }
  }
  if (memory == nullptr && compute == nullptr) {
    if (arguments.has("exclusive") && gpu.kind == SliceKind::fraction) {
      return invalid("--exclusive and a fraction contradict each other; ask for -G 1");
    }
    TRY(take_topology(arguments, gpu));
    return gpu;
  }
  if (arguments.has("exclusive"))
    return invalid("--exclusive and --gpu-mem or --gpu-compute contradict each other");
  if (amount == nullptr) gpu.count = 1;
  if (gpu.count == 0) return invalid("--gpus: 0 GPUs have no memory or compute to ask for");
  if (gpu.is_moldable())
    return invalid("--gpus: a range is of whole GPUs, without --gpu-mem and --gpu-compute");
  if (compute != nullptr && gpu.kind == SliceKind::fraction) {
    return invalid("--gpu-compute: -G " + *amount + " says the compute already; give one of the two");
  }
  gpu.kind = SliceKind::fraction;
  TRY(take_topology(arguments, gpu));
  if (memory != nullptr) {
    TRY(parse_gpu_memory(*memory, gpu));
  }
  if (compute != nullptr) {
    TRY_OPTION(gpu.compute, "--gpu-compute", parse_percent(*compute));
  }
  return gpu;
}

}  // namespace tranche::cli
