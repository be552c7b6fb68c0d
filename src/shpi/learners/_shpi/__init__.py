"""Inside `OfflineSHPI`: the judge of policies, the climb from mu to the best proven one, what is returned."""
