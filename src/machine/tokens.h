// Tokens for the API on TCP: who holds one acts as its user, within its scope, until it expires or is
// revoked.
//
// A token is "tranche_<id>_<64 hex digits>", 256 random bits, told once. Only its SHA-256 is kept, in
// <state_dir>/tokens, owner-only, replaced as a whole at each change. A file that cannot be read is an error:
// no token is better than a wrong one. Ids are never used again.
//
// Threading: the reactor's thread. A change waits for the disk, some 10 ms: callers bound how often.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/api.h"

namespace tranche::machine {

class TokenStore {
 public:
  static constexpr size_t kPerUserMax = 64;
  static constexpr size_t kTokensMax = 10'000;

  // Reads <state_dir>/tokens; none is an empty store.
  static Result<TokenStore> open(const std::string& state_dir);

  // over_limit beyond the bounds.
  Result<api::TokenCreated> create(uint32_t uid, const std::string& user, const api::TokenRequest& request,
                                   Time now);
  Result<void> revoke(uint64_t id);

  // The token's row, or null if there is no such token, or it has expired. One answer for all of these: a
  // guesser learns nothing.
  const api::TokenRow* find(std::string_view token, Time now) const;
  // Null if there is none of that id.
  const api::TokenRow* row(uint64_t id) const;
  std::vector<api::TokenRow> rows() const;

 private:
  struct Stored {
    api::TokenRow row;
    std::string hash;
  };
  explicit TokenStore(std::string path) : path_(std::move(path)) {}
  Result<void> parse(const std::string& text);
  Result<void> parse_line(const std::string& line);
  // Writes `tokens` and takes them over; what has expired long ago is left out.
  Result<void> replace(std::map<uint64_t, Stored> tokens, uint64_t next);

  std::string path_;
  uint64_t next_ = 1;
  std::map<uint64_t, Stored> tokens_;
};

}  // namespace tranche::machine
