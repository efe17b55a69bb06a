"""The conversion of Strimzi's manifests to manifests of Barnabas."""
