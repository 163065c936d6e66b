// What another process or machine says: the daemon's answers to the command line (through the TLS relay too,
// which only carries bytes), frames of an interactive session, the sampler's messages.
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <utility>

#include "cli/frame_stream.h"
#include "fuzz_target.h"
#include "gpu/sampler_values.h"
#include "linux/http_client.h"

namespace tranche::fuzz {
namespace {

// A stream socket whose other end has said `bytes` and nothing more.
struct SaidSocket {
  explicit SaidSocket(std::string_view bytes) {
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "no sockets");
    socket = UniqueFd(ends[0]);
    peer = UniqueFd(ends[1]);
    require(
        ::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()),
        "a socket does not take an input");
    ::shutdown(peer.get(), SHUT_WR);
  }
  UniqueFd socket, peer;
};

// --- HTTP: the first byte says what was asked

bool run_http(std::string_view bytes) {
  if (bytes.empty()) return false;
  SaidSocket said(bytes.substr(1));
  // One that has ended before anything was asked is replaced: the first here has.
  SaidSocket ended("");
  static std::vector<UniqueFd*> connections;
  connections = {&said.socket, &ended.socket};
  HttpClient::set_remote({[](const std::string&) -> Result<UniqueFd> {
                            if (connections.empty()) return fail(ErrorCode::unavailable, "asked too often");
                            UniqueFd next = std::move(*connections.back());
                            connections.pop_back();
                            return next;
                          },
                          []() -> Result<HttpHeaders> { return HttpHeaders{}; }});
  HttpClient::Options options;
  options.timeout = kSecond;
  HttpClient client("https://fuzz", options);
  switch (bytes.front()) {
    case 's':
      return client.stream("/v1/events", {}, [](const ServerSentEvent&) { return true; }).has_value();
    case 'u':
      return client.upgrade("POST", "/v1/jobs", "tranche-attach", {}, "{}").has_value();
    default:
      return client.request("GET", "/v1/jobs").has_value();
  }
}

std::vector<std::string> http_seeds() {
  return {"rHTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
          "rHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0;x=y\r\nA: b\r\n\r\n",
          "rHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
          "sHTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
          "22\r\nid: 7\nevent: job\ndata: {}\n\n: beat\n\r\n0\r\n\r\n",
          "sHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
          "uHTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tranche-attach\r\n\r\nearly",
          "uHTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nno!"};
}

std::vector<std::string> http_words() {
  return {"\r\n",
          "\r\n\r\n",
          "\n",
          "HTTP/1.1 ",
          "HTTP/1.0 ",
          "Content-Length: ",
          "Transfer-Encoding: chunked\r\n",
          "Connection: close\r\n",
          "Upgrade: ",
          "101",
          "200",
          "304",
          "0\r\n\r\n",
          "ffffffffffffffff\r\n",
          "7fffffff\r\n",
          "data: ",
          "id: ",
          "event: ",
          "retry: 1\n",
          ": ",
          "Content-Type: text/event-stream\r\n"};
}

// --- frames

std::string frame(wire::FrameType type, std::string_view payload) {
  wire::FrameHeader header{};
  header.size = static_cast<uint32_t>(payload.size());
  header.type = static_cast<uint8_t>(type);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + std::string(payload);
}

bool run_frames(std::string_view bytes) {
  const size_t early = bytes.size() / 3;
  const SaidSocket said(bytes.substr(early));
  cli::FrameStream stream(said.socket.get(), std::string(bytes.substr(0, early)));
  for (bool more = true; more;) {
    const auto received = stream.receive();
    if (!received) return false;
    more = *received;
    for (;;) {
      const auto next = stream.next();
      if (!next) return false;
      if (!*next) break;
      require((*next)->payload.size() <= wire::kMaxFramePayload, "a frame is larger than allowed");
    }
  }
  return true;
}

std::vector<std::string> frame_seeds() {
  wire::ExitFrame exit{};
  exit.exit_code = 7;
  const std::string last(reinterpret_cast<const char*>(&exit), sizeof exit);
  return {frame(wire::FrameType::progress, "waits") + frame(wire::FrameType::started, "") +
              frame(wire::FrameType::stdout_data, "hello\n") +
              frame(wire::FrameType::exit, last + "it ended"),
          frame(wire::FrameType::detached, ""), frame(wire::FrameType::stderr_data, std::string(3000, 'x'))};
}

std::vector<std::string> no_words() { return {}; }

// --- the sampler's messages; the first byte is the kind

template <class Message>
const Message* as(const std::optional<Message>& message) {
  return message ? &*message : nullptr;
}

bool run_sampler(std::string_view bytes) {
  if (bytes.empty()) return false;
  const auto packet = std::as_bytes(std::span(bytes.data() + 1, bytes.size() - 1));
  const auto gpu = sampler::decode<sampler::Gpu>(packet);
  const auto device = sampler::decode<sampler::MigDevice>(packet);
  const auto problem = sampler::decode<sampler::GpuProblem>(packet);
  const auto user = sampler::decode<sampler::UserName>(packet);
  const auto reading = sampler::decode<sampler::Reading>(packet, offsetof(sampler::Reading, processes));
  if (gpu) {
    DiscoveredGpu pair[2] = {discovered_gpu(*gpu), discovered_gpu(*gpu)};
    complete_links(pair);
  }
  if (device) (void)mig_device(*device);
  if (problem) require(!problem_text(*problem).empty(), "a problem has no text");
  if (user) (void)sampler::field_text(user->name);
  return gpu || device || problem || user || reading;
}

template <class Message>
std::string message_of(sampler::Kind kind) {
  Message message{};
  message.header.size = sizeof message;
  message.header.kind = kind;
  return " " + std::string(reinterpret_cast<const char*>(&message), sizeof message);
}

std::vector<std::string> sampler_seeds() {
  std::vector<std::string> inputs = {message_of<sampler::Gpu>(sampler::Kind::gpu),
                                     message_of<sampler::MigDevice>(sampler::Kind::mig_device),
                                     message_of<sampler::GpuProblem>(sampler::Kind::gpu_problem),
                                     message_of<sampler::UserName>(sampler::Kind::user_name)};
  sampler::Gpu gpu{};
  gpu.header.size = sizeof gpu;
  gpu.header.kind = sampler::Kind::gpu;
  gpu.link_count = 2;
  sampler::set_field(gpu.uuid, "GPU-00000000-0000-0000-0000-000000000001");
  sampler::set_field(gpu.pci_bus_id, "00000000:07:00.0");
  sampler::set_field(gpu.cpu_affinity, "0-7,16-23");
  inputs.push_back(" " + std::string(reinterpret_cast<const char*>(&gpu), sizeof gpu));
  return inputs;
}

}  // namespace

std::vector<Target> peer_targets() {
  return {{"http", run_http, http_seeds, http_words},
          {"frames", run_frames, frame_seeds, no_words},
          {"sampler", run_sampler, sampler_seeds, no_words}};
}

}  // namespace tranche::fuzz
