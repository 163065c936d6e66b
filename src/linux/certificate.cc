#include "linux/certificate.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <time.h>

#include <memory>

namespace tranche {

Result<Time> certificate_end(std::string_view pem) {
  const std::unique_ptr<BIO, decltype(&::BIO_free)> bytes(
      ::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &::BIO_free);
  const std::unique_ptr<X509, decltype(&::X509_free)> certificate(
      bytes ? ::PEM_read_bio_X509(bytes.get(), nullptr, nullptr, nullptr) : nullptr, &::X509_free);
  tm end{};
  if (!certificate || ::ASN1_TIME_to_tm(::X509_get0_notAfter(certificate.get()), &end) != 1)
    return fail(ErrorCode::invalid_argument, "it holds no certificate in PEM");
  return Time(int64_t{::timegm(&end)} * kSecond.count());
}

}  // namespace tranche
