-- why: a published figure beside a measured one is context; mixed with it, it
-- is a false measurement
select row_id
from {{ ref('measured_rows') }}
where source = 'published'
union all
select claim_id as row_id
from {{ ref('claims') }}
where (source = 'published') != (campaign is null)
