#include "machine/tokens.h"

#include <algorithm>
#include <charconv>

#include "base/quantity_text.h"
#include "base/utf8.h"
#include "linux/digest.h"
#include "linux/files.h"

namespace tranche::machine {
namespace {

constexpr std::string_view kPrefix = "tranche_";
constexpr std::string_view kHeader = "tranche-tokens 1 ";
constexpr size_t kFileBytesMax = size_t{8} << 20;
constexpr size_t kSecretDigits = 64;
constexpr Duration kLifetimeDefault{30 * kDay.count()};

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

// All 63 bits, which parse_integer has no use for.
Result<int64_t> parse_nanoseconds(const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && value >= 0) return value;
  return fail(ErrorCode::corrupt, "a line has a time that is none");
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

Result<TokenStore> TokenStore::open(const std::string& state_dir) {
  TokenStore store(state_dir + "/tokens");
  const auto text = read_file(store.path_, kFileBytesMax);
  if (!text && text.error().code() == ErrorCode::not_found) return store;
  if (!text) return fail(Error(text.error().clone()).with_context("the tokens of the API"));
  if (const auto parsed = store.parse(*text); !parsed) {
    return fail(ErrorCode::corrupt, store.path_ + ": " + parsed.error().message() +
                                        "; restore it from a backup, or remove it and make tokens anew");
  }
  return store;
}

Result<void> TokenStore::parse(const std::string& text) {
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    if (begin == 0) {
      if (!line.starts_with(kHeader)) return fail(ErrorCode::corrupt, "this is no list of tokens");
      TRY_ASSIGN(const int64_t next, parse_integer(line.substr(kHeader.size()), 1, INT64_MAX, "the next id"));
      next_ = static_cast<uint64_t>(next);
    } else {
      TRY(parse_line(line));
    }
    begin = end + 1;
  }
  if (begin != text.size() || begin == 0) return fail(ErrorCode::corrupt, "its last line is cut");
  return {};
}

Result<void> TokenStore::parse_line(const std::string& line) {
  const std::vector<std::string> fields = fields_of(line);
  if (fields.size() != 8) return fail(ErrorCode::corrupt, "a line has not eight fields");
  Stored stored;
  TRY_ASSIGN(const int64_t id, parse_integer(fields[0], 1, INT64_MAX, "an id"));
  TRY_ASSIGN(const int64_t uid, parse_integer(fields[1], 1, UINT32_MAX, "a uid"));
  const auto scope = from_string<api::TokenScope>(fields[2]);
  TRY_ASSIGN(const int64_t created, parse_nanoseconds(fields[3]));
  TRY_ASSIGN(const int64_t expires, parse_nanoseconds(fields[4]));
  if (!scope || fields[5].size() != kSecretDigits || !is_hex(fields[5]))
    return fail(ErrorCode::corrupt, "a line has a scope or a hash that is none");
  stored.row = {static_cast<uint64_t>(id),
                fields[6],
                static_cast<uint32_t>(uid),
                *scope,
                fields[7],
                Time(created),
                Time(expires)};
  stored.hash = fields[5];
  if (stored.row.id >= next_) return fail(ErrorCode::corrupt, "an id is above the last one given");
  tokens_[stored.row.id] = std::move(stored);
  return {};
}

Result<void> TokenStore::replace(std::map<uint64_t, Stored> tokens, uint64_t next) {
  std::string text = std::string(kHeader) + std::to_string(next) + "\n";
  for (const auto& [id, stored] : tokens) {
    const api::TokenRow& row = stored.row;
    text += std::to_string(id) + "\t" + std::to_string(row.uid) + "\t" + std::string(to_string(row.scope)) +
            "\t" + std::to_string(row.created.nanoseconds()) + "\t" +
            std::to_string(row.expires.nanoseconds()) + "\t" + stored.hash + "\t" + row.user + "\t" +
            row.label + "\n";
  }
  TRY(write_file_atomically(path_, text, 0600));
  tokens_ = std::move(tokens);
  next_ = next;
  return {};
}

Result<api::TokenCreated> TokenStore::create(uint32_t uid, const std::string& user,
                                             const api::TokenRequest& request, Time now) {
  std::map<uint64_t, Stored> tokens = tokens_;
  std::erase_if(tokens, [&](const auto& entry) { return entry.second.row.expires <= now; });
  const auto own = std::count_if(tokens.begin(), tokens.end(),
                                 [&](const auto& entry) { return entry.second.row.uid == uid; });
  if (static_cast<size_t>(own) >= kPerUserMax || tokens.size() >= kTokensMax) {
    return fail(ErrorCode::over_limit, "there are too many tokens: revoke some first (`tranche token ls`)");
  }
  const std::string secret = random_hex(kSecretDigits / 2);
  Stored stored;
  stored.row.id = next_;
  stored.row.user = user;
  stored.row.uid = uid;
  stored.row.scope = request.scope;
  stored.row.label = printable_part(request.label, 128);
  stored.row.created = now;
  stored.row.expires = now + request.lifetime.value_or(kLifetimeDefault);
  stored.hash = sha256_hex(secret);
  api::TokenCreated created{std::string(kPrefix) + std::to_string(next_) + "_" + secret, stored.row};
  tokens[next_] = std::move(stored);
  TRY(replace(std::move(tokens), next_ + 1));
  return created;
}

Result<void> TokenStore::revoke(uint64_t id) {
  std::map<uint64_t, Stored> tokens = tokens_;
  if (tokens.erase(id) == 0) return fail(ErrorCode::not_found, "there is no token " + std::to_string(id));
  return replace(std::move(tokens), next_);
}

const api::TokenRow* TokenStore::find(std::string_view token, Time now) const {
  if (!token.starts_with(kPrefix)) return nullptr;
  token.remove_prefix(kPrefix.size());
  const size_t end = token.find('_');
  if (end == std::string_view::npos || token.size() - end - 1 != kSecretDigits) return nullptr;
  const auto id = parse_integer(token.substr(0, end), 1, INT64_MAX, "an id");
  const auto found = id ? tokens_.find(static_cast<uint64_t>(*id)) : tokens_.end();
  if (found == tokens_.end() || found->second.row.expires <= now) return nullptr;
  return equal_in_constant_time(sha256_hex(token.substr(end + 1)), found->second.hash) ? &found->second.row
                                                                                       : nullptr;
}

const api::TokenRow* TokenStore::row(uint64_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second.row;
}

std::vector<api::TokenRow> TokenStore::rows() const {
  std::vector<api::TokenRow> rows;
  for (const auto& [id, stored] : tokens_) rows.push_back(stored.row);
  return rows;
}

}  // namespace tranche::machine
